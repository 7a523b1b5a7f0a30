// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// Ports of a server. The first is protected, the second is not. The clients are at the other end of the veth pair.
const (
	guardedPort, plainPort = 80, 81
	web4, web6             = "192.0.2.53", "2001:db8:53::53"
	remote4, remote6       = "192.0.2.7", "2001:db8:53::7"
)

// protecting returns an image that answers every SYN to the protected port with a cookie, and passes all other packets. If there is a device fw0, it
// answers only frames for fw0.
func protecting(t *testing.T, flows int) *image.Image {
	t.Helper()
	protection := ir.Protection{Service: "web", Always: true, Flows: flows, Start: -1, Stop: -1,
		Ports: []ir.Range{{First: guardedPort, Last: guardedPort}}}
	x, err := xdpgen.Generate(&ir.Program{
		Default: ir.Pass, Protections: []ir.Protection{protection},
		Rules: []ir.Rule{{Name: "web:syn", Verdict: ir.Pass, Protect: 1, Match: []ir.Match{
			{Field: packet.DPort, Values: protection.Ports},
		}}},
	}, xdpgen.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if fw0, err := net.InterfaceByName("fw0"); err == nil {
		reachedBy(&x.Image, fw0.HardwareAddr)
	}
	return &x.Image
}

// clients creates the veth pair with the server at fw0. It returns the namespace of the clients.
func clients(t *testing.T) *testutil.Elsewhere {
	t.Helper()
	there := testutil.NewElsewhere(t)
	testutil.Veth(t, "fw0", "fw1", web4+"/24", web6+"/64")
	there.Take(t, "fw1")
	there.Do(func() {
		for _, line := range []string{"link set lo up", "link set fw1 up", "addr add " + remote4 + "/24 dev fw1",
			"addr add " + remote6 + "/64 dev fw1 nodad"} {
			ip(t, line)
		}
		detach, err := testutil.AttachForeign("fw1") // a veth accepts frames that XDP sends only if it has an XDP program
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { detach() })
	})
	testutil.WaitUp(t, "fw0")
	return there
}

// serve listens at a port on all addresses, without MPTCP. waiting is the length of the accept queue.
func serve(t *testing.T, port, waiting int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.Bind(fd, &unix.SockaddrInet6{Port: port}), unix.Listen(fd, waiting))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// accept accepts the next connection, within a minute.
func accept(t *testing.T, listener int) *os.File {
	t.Helper()
	ready := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
	n, err := unix.Poll(ready, 60_000)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(ready, 60_000)
	}
	if n != 1 {
		t.Fatalf("no connection came: %v", err)
	}
	fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "connection")
	t.Cleanup(func() { f.Close() })
	return f
}

// dial connects from the given namespace, and sends a text at once.
func dial(t *testing.T, there *testutil.Elsewhere, server string, port int, text string) (c net.Conn) {
	t.Helper()
	there.Do(func() {
		var err error
		dialer := net.Dialer{Timeout: time.Minute}
		dialer.SetMultipathTCP(false)
		c, err = dialer.Dial("tcp", net.JoinHostPort(server, strconv.Itoa(port)))
		if err != nil {
			t.Errorf("connecting to %s: %v", server, err)
			return
		}
		if _, err := io.WriteString(c, text); err != nil {
			t.Errorf("sending to %s: %v", server, err)
		}
	})
	if c == nil {
		t.FailNow()
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func info(t *testing.T, c syscall.Conn) (i *unix.TCPInfo) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) { i, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// Options of a connection, as TCPI_OPT_TIMESTAMPS and the like in linux/tcp.h.
const (
	optTimestamps = 1 << iota
	optSACK
	optWScale
	optECN
)

// agreement has the TCP options that both ends of a connection have negotiated, according to the kernel.
type agreement struct {
	options, sentScale uint8
	mss                uint32
}

// toldInNumber returns the part of an agreement that a cookie can encode in the sequence number.
func (a agreement) toldInNumber() agreement {
	const most = 8 // the largest of small_wscales of bpf/cookie.h
	a.options &^= optECN
	a.sentScale = min(a.sentScale, most)
	if a.options&optSACK == 0 {
		a.options, a.sentScale = 0, 0
	}
	return a
}

func negotiated(t *testing.T, c syscall.Conn) agreement {
	t.Helper()
	i := info(t, c)
	const all = optTimestamps | optSACK | optWScale | optECN
	scales := (*[8]byte)(unsafe.Pointer(i))[6] // the lower half is tcpi_snd_wscale, for which the Go type has no field
	return agreement{i.Options & all, scales & 15, i.Snd_mss}
}

// set writes a sysctl of the network namespace of the thread.
func set(t *testing.T, name, value string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
		t.Errorf("setting %s: %v", name, err)
	}
}

// protected installs a program on fw0 that protects the port.
func protected(t *testing.T, s *datapath.State) *datapath.Program {
	t.Helper()
	p := loadInside(t, protecting(t, 1000))
	if _, err := s.Install(p, nil, in("fw0"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	return p
}

// received checks that a server receives a text.
func received(t *testing.T, c io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("the server got %q, %v, want %q", got, err, want)
	}
}

// TestGivenConnections opens connections with every combination of options. The kernel's state of a connection that started with a cookie must equal
// that of a connection without a cookie.
func TestGivenConnections(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	there := clients(t)
	p := protected(t, locked(t))
	flows, err := p.Flows()
	if err != nil {
		t.Fatal(err)
	}
	defer flows.Close()
	guarded, plain := serve(t, guardedPort, 10), serve(t, plainPort, 10)
	set(t, "ipv4/tcp_ecn", "1")
	for choice := range 16 {
		there.Do(func() {
			for bit, name := range []string{"tcp_timestamps", "tcp_sack", "tcp_window_scaling", "tcp_ecn"} {
				set(t, "ipv4/"+name, strconv.Itoa(choice>>bit&1))
			}
		})
		for _, server := range []string{web4, web6} {
			c := dial(t, there, server, guardedPort, "hello")
			child := accept(t, guarded)
			received(t, child, "hello")
			other := dial(t, there, server, plainPort, "hello")
			want, got := negotiated(t, accept(t, plain)), negotiated(t, child)
			if choice&1 == 0 { // no timestamps
				want = want.toldInNumber()
			}
			if got != want {
				t.Errorf("options %04b, to %s: the server has %+v, want %+v", choice, server, got, want)
			}
			state := flows.State(datapath.Connection{Client: addrOf(c.LocalAddr()), Server: addrOf(c.RemoteAddr())})
			if _, err := io.WriteString(c, "more"); err != nil {
				t.Error(err)
			}
			received(t, child, "more")
			if state != datapath.Proved && state != datapath.Established {
				t.Errorf("the table says %d of a connection", state)
			}
			c.Close()
			other.Close()
		}
	}
}

func addrOf(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// TestGivenAtOnce sends data right after the ACK. None of it may be lost.
func TestGivenAtOnce(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	there := clients(t)
	protected(t, locked(t))
	listener := serve(t, guardedPort, 200)
	again := 0
	for range 100 {
		c := dial(t, there, web4, guardedPort, "hello")
		child := accept(t, listener)
		received(t, child, "hello")
		lost := 0
		testutil.Eventually(5*time.Second, func() bool { // the other end reports duplicates (RFC 2883), which occur when a machine pauses
			i := info(t, c.(*net.TCPConn))
			lost = int(i.Total_retrans - min(i.Total_retrans, i.Dsack_dups))
			return lost == 0
		})
		again += lost
		c.Close()
		child.Close()
	}
	if again > 2 { // on a busy machine a timer may expire early
		t.Errorf("segments were sent again %d times in 100 connections", again)
	}
}

// TestGivenNoPlace connects more clients than fit into the accept queue of a socket. The remaining clients must be served when there is space, by the
// data that they retransmit. No client may be reset.
func TestGivenNoPlace(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	there := clients(t)
	protected(t, locked(t))
	listener := serve(t, guardedPort, 1)
	want := map[string]bool{}
	for i := range 5 {
		text := fmt.Sprint("client", i)
		want[text] = true
		dial(t, there, web4, guardedPort, text)
	}
	time.Sleep(50 * time.Millisecond)
	for range 5 {
		got := make([]byte, len("client0"))
		if _, err := io.ReadFull(accept(t, listener), got); err != nil || !want[string(got)] {
			t.Errorf("the server got %q, %v", got, err)
		}
		delete(want, string(got))
	}
}

// TestRefusedConnections protects an MPTCP listener, to which the kernel cannot pass connections. The program must stop sending cookies. Clients that
// connect after that must be served.
func TestRefusedConnections(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	there := clients(t)
	p := protected(t, locked(t))
	var config net.ListenConfig
	config.SetMultipathTCP(true)
	l, err := config.Listen(context.Background(), "tcp", ":"+strconv.Itoa(guardedPort))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial(t, there, web4, guardedPort, "")
	deadline := time.Now().Add(time.Minute)
	for !bytes.Contains(stateOf(t, p), refusal(unix.EINVAL)) && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if state := stateOf(t, p); !bytes.Contains(state, refusal(unix.EINVAL)) {
		t.Fatalf("nothing was refused: %x", state)
	}
	dial(t, there, web4, guardedPort, "hello")
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	received(t, c, "hello")
}

// stateOf returns struct protection_state of bpf/protect.h.
func stateOf(t *testing.T, p *datapath.Program) []byte {
	t.Helper()
	state := make([]byte, image.ProtectionStateSize)
	if err := p.Map(image.ProtectionStates).Lookup(uint32(0), &state); err != nil {
		t.Fatal(err)
	}
	return state
}

// refusal returns the end of a protection_state that records one refusal.
func refusal(why unix.Errno) []byte {
	b := binary.NativeEndian.AppendUint32(nil, 1)
	return binary.NativeEndian.AppendUint32(b, uint32(why))
}
