// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// scene is a host with sockets behind the device eth0. peer0 is the other end of the link.
type scene struct {
	control.Instance
	wire     int // packet socket of peer0 that sends frames
	to       unix.SockaddrLinklayer
	answers  int // packet socket of peer0 that receives the host's SYN-ACKs
	sockets  []socket
	sent     uint64
	marked   bool // the next frame gets a tag in its metadata
	metadata bool // the kernel can deliver such frames
	buffer   []byte

	connections []*connection // connections that were opened before any policy
}

// socket is a socket of an application.
type socket struct {
	fd    int
	proto uint8
	addr  netip.Addr
	port  uint16
}

// event is data that an application received.
type event struct {
	proto        uint8
	src, dst     netip.Addr
	sport, dport uint16
	answer       bool // a SYN-ACK from the listener or from XDP
}

func newScene(t *testing.T) *scene {
	t.Helper()
	testutil.Veth(t, "eth0", "peer0")
	for _, line := range []string{
		"ip link set peer0 arp off", "ip link set eth0 address 02:00:00:00:00:02 arp off",
		"sysctl -qw net.ipv6.conf.peer0.disable_ipv6=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0",
		"sysctl -qw net.ipv4.tcp_syncookies=2 net.ipv4.ipfrag_time=1 net.ipv6.ip6frag_time=1 net.ipv4.ipfrag_max_dist=0",
		"sysctl -qw net.ipv4.ipfrag_high_thresh=67108864 net.ipv6.ip6frag_high_thresh=67108864",
		"ip addr add 192.0.2.1/24 dev eth0", "ip addr add 192.0.2.2/24 dev eth0",
		"ip addr add 2001:db8:ffff::1/64 dev eth0 nodad", "ip addr add 2001:db8:ffff::2/64 dev eth0 nodad",
		// Sources are reached through a gateway, because the kernel has space for only 1,024 neighbors.
		"ip neigh add 192.0.2.254 lladdr 02:00:00:00:00:01 dev eth0", "ip route add default via 192.0.2.254",
		"ip neigh add 2001:db8:ffff::fe lladdr 02:00:00:00:00:01 dev eth0", "ip -6 route add default via 2001:db8:ffff::fe",
	} {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	s := &scene{Instance: control.Instance{Dir: datapath.DefaultDir}, buffer: make([]byte, 1<<16)}
	t.Cleanup(func() {
		if err := s.Unload(context.Background()); err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
			t.Error(err)
		}
		for _, fd := range append([]int{s.wire, s.answers}, descriptors(s.sockets)...) {
			unix.Close(fd)
		}
	})
	peer, err := netlink.LinkByName("peer0")
	if err != nil {
		t.Fatal(err)
	}
	s.to = unix.SockaddrLinklayer{Ifindex: peer.Attrs().Index}
	if s.wire, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	detach, err := testutil.AttachForeign("peer0") // a veth accepts packets that XDP sends only if it has an XDP program
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { detach() })
	if err := s.tagMarked(t, peer.Attrs().Index); err != nil {
		t.Fatalf("tags beside frames: %v", err)
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if s.answers, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err == nil {
		err = unix.SetsockoptInt(s.answers, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	}
	if err == nil {
		err = unix.SetsockoptInt(s.answers, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<26)
	}
	if err == nil {
		err = unix.Bind(s.answers, &unix.SockaddrLinklayer{Protocol: all, Ifindex: peer.Attrs().Index})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range targets {
		for _, a := range family {
			for _, p := range ports {
				s.open(t, socket{proto: protoUDP, addr: a, port: p})
				s.open(t, socket{proto: protoTCP, addr: a, port: p})
				s.open(t, socket{proto: protoUDPLite, addr: a, port: p})
			}
			s.open(t, socket{proto: protoGRE, addr: a})
			s.open(t, socket{proto: protoSCTP, addr: a})
		}
	}
	return s
}

func descriptors(list []socket) (fds []int) {
	for _, s := range list {
		fds = append(fds, s.fd)
	}
	return fds
}

// mark is the socket mark of frames that get a tag in their metadata.
const mark = 0x7461

// tagMarked makes peer0 add a VLAN tag with VID 0 to the metadata of marked frames, as a network card does that strips tags. A veth passes the
// metadata on.
func (s *scene) tagMarked(t *testing.T, peer int) error {
	const markOffset = 8 // of struct __sk_buff
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "tag_marked", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, markOffset, asm.Word),
			asm.JNE.Imm(asm.R2, mark, "pass"),
			asm.Mov.Imm(asm.R2, int32(binary.NativeEndian.Uint16([]byte{0x81, 0}))),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnSkbVlanPush.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("pass"),
			asm.Return(),
		},
	})
	if err != nil {
		return err
	}
	defer prog.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: peer, Program: prog, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return err
	}
	t.Cleanup(func() { l.Close() })
	s.metadata = true
	return nil
}

// open opens an application's socket.
func (s *scene) open(t *testing.T, k socket) {
	t.Helper()
	family, kind, proto := unix.AF_INET, unix.SOCK_RAW, int(k.proto)
	var at unix.Sockaddr
	if k.addr.Is4() {
		at = &unix.SockaddrInet4{Port: int(k.port), Addr: k.addr.As4()}
	} else {
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Port: int(k.port), Addr: k.addr.As16()}
	}
	switch k.proto {
	case protoUDP, protoUDPLite:
		kind = unix.SOCK_DGRAM
	case protoTCP:
		kind = unix.SOCK_STREAM
	}
	var err error
	if k.fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto); err != nil {
		t.Fatal(err)
	}
	s.sockets = append(s.sockets, k)
	if err = unix.Bind(k.fd, at); err == nil && k.proto == protoTCP {
		err = unix.Listen(k.fd, 4096)
	}
	if err == nil {
		err = unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<23)
	}
	if err != nil {
		t.Fatalf("socket %+v: %v", k, err)
	}
}

// send sends the frames of an attempt.
func (s *scene) send(t *testing.T, a *attempt) {
	t.Helper()
	for _, f := range a.frames {
		if f.metadata != s.marked {
			s.marked = f.metadata
			if err := unix.SetsockoptInt(s.wire, unix.SOL_SOCKET, unix.SO_MARK, map[bool]int{true: mark}[s.marked]); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Sendto(s.wire, f.bytes, 0, &s.to); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: the frame is shorter than a header
			t.Fatalf("sending %d bytes: %v", len(f.bytes), err)
		}
		s.sent++
	}
}

// events reads the data that sockets have received so far.
func (s *scene) events(t *testing.T) (list []event) {
	t.Helper()
	for _, k := range s.sockets {
		if k.proto == protoTCP {
			continue
		}
		for {
			_, from, err := unix.Recvfrom(k.fd, s.buffer, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				t.Fatalf("socket %+v: %v", k, err)
			}
			e := event{proto: k.proto, dst: k.addr, dport: k.port}
			switch from := from.(type) {
			case *unix.SockaddrInet4:
				e.src, e.sport = netip.AddrFrom4(from.Addr), uint16(from.Port)
			case *unix.SockaddrInet6:
				e.src, e.sport = netip.AddrFrom16(from.Addr), uint16(from.Port)
			}
			if k.port == 0 {
				e.sport = 0 // for a raw socket it is the protocol
			}
			list = append(list, e)
		}
	}
	list = append(list, s.spoken(t)...)
	for {
		n, _, err := unix.Recvfrom(s.answers, s.buffer, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return list
		}
		if err != nil {
			t.Fatalf("answers: %v", err)
		}
		if e, ok := answered(s.buffer[:n]); ok {
			list = append(list, e)
		}
	}
}

// answered decodes a SYN-ACK. It is from a listener that received the SYN, or from XDP, which answers for the listener.
func answered(b []byte) (e event, ok bool) {
	if len(b) < 14 {
		return e, false
	}
	tcp := []byte(nil)
	switch ip := b[14:]; {
	case b[12] == 0x08 && b[13] == 0 && len(ip) >= 40 && ip[9] == protoTCP:
		tcp = ip[int(ip[0]&15)*4:]
		e.dst, e.src = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
	case b[12] == 0x86 && b[13] == 0xdd && len(ip) >= 60 && ip[6] == protoTCP:
		tcp = ip[40:]
		e.dst, e.src = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
	}
	if len(tcp) < 20 || tcp[13]&0x12 != 0x12 {
		return e, false
	}
	e.proto, e.answer = protoTCP, true
	e.dport, e.sport = binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])
	return e, true
}

// settle waits until eth0 has received all frames that peer0 has sent.
func (s *scene) settle(t *testing.T) {
	t.Helper()
	var sent, taken uint64
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		sent, taken = statistics(t)
		if taken >= sent {
			return
		}
	}
	t.Logf("%d frames sent, %d received", sent, taken)
}

// statistics returns the number of frames that peer0 has sent, and the number of frames that eth0 has received or lost.
func statistics(t *testing.T) (sent, taken uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, counts, _ := strings.Cut(strings.TrimSpace(line), ":")
		var n [16]uint64
		if name != "eth0" && name != "peer0" {
			continue
		}
		for i, word := range strings.Fields(counts) {
			fmt.Sscan(word, &n[i])
		}
		if name == "eth0" {
			taken = n[1] + n[3]
		} else {
			sent = n[9]
		}
	}
	return sent, taken
}
