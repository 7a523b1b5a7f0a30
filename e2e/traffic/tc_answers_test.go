// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// answering is a policy whose answers a client must get: truncated DNS, and SYN cookies.
const answering = "default: drop\nchecks: standard\nrules:\n" +
	"  - {name: any, port: udp/53, dns: {type: [ANY]}, then: truncate}\n" +
	"  - {name: echo, port: udp/9000, %s, then: pass}\n" +
	"  - {name: pings, proto: [icmp, icmpv6], then: pass}\n" +
	"  - {name: stream, port: tcp/9000, then: pass}\n" +
	"services:\n  - {name: web, port: tcp/80, syn: {mode: host, when: always}}\n"

// answered checks that clients at these addresses of the server get what the policy answering gives them.
func (s *plainScene) answered(at ...netip.Addr) {
	s.Helper()
	var l net.Listener
	err := s.server.Do(func() (err error) {
		var c net.ListenConfig
		c.SetMultipathTCP(false) // the kernel gives such a listener no connections with cookies
		l, err = c.Listen(s.ctx, "tcp", "[::]:80")
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	query, _ := unhex("123401000001000000000000076578616d706c6503636f6d0000ff0001")
	for i, a := range at {
		var reply []byte
		c := s.sender(netip.AddrPortFrom(a, 53))
		testutil.Eventually(patience, func() (came bool) {
			c.Write(query)
			reply, _, came = testutil.Receive(s, c, time.Second)
			return came
		})
		if len(reply) < 4 || reply[2]&0x82 != 0x82 {
			s.Errorf("%s: the truncated answer is %x", a, reply)
		}
		ctx, cancel := context.WithTimeout(s.ctx, patience)
		t, err := s.client.Dial(ctx, "tcp", netip.AddrPortFrom(a, 80))
		cancel()
		if err != nil {
			s.Errorf("%s: %v", a, err)
			continue
		}
		t.SetDeadline(time.Now().Add(patience))
		text := strings.Repeat("hello", 20000+i)
		go t.Write([]byte(text))
		got := make([]byte, len(text))
		if _, err := io.ReadFull(t, got); err != nil || string(got) != text {
			s.Errorf("%s: the echo: %v", a, err)
		}
		t.Close()
	}
	r := s.reasons()
	for _, name := range []string{"any", "web:answered", "web:valid"} {
		s.Logf("%s: %d packets, %d bytes", name, r[name].Packets, r[name].Bytes)
	}
	for name, c := range r {
		if c.Verdict == "drop" && c.Packets > 0 {
			s.Logf("dropped by %s: %d", name, c.Packets)
		}
	}
}

func unhex(text string) (b []byte, err error) {
	_, err = fmt.Sscanf(text, "%x", &b)
	return b, err
}

// TestAnswersOnPlainVeth checks the answers to packets whose checksum is not complete.
func TestAnswersOnPlainVeth(t *testing.T) {
	inPlainScene(t, func(s *plainScene) {
		s.filter(fmt.Sprintf(answering, "vlan: none"))
		s.answered(plain4, plain6)
	})
}

// program attaches a program to a device for packets that enter or leave. The program runs the given instructions, and then the next program decides.
func (s *plainScene) program(h *lab.Host, device string, at ebpf.AttachType, do ...asm.Instruction) {
	s.Helper()
	code := append(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}, do...), testutil.NextAtTC()...)
	err := h.Do(func() error {
		detach, err := testutil.AttachAtTC(device, at, link.Tail(), code)
		if err == nil {
			s.Cleanup(func() { detach() })
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
}

// TestAnswersInVLAN does the same to a client in a VLAN, and in two. A veth carries the outer tag beside the frame.
func TestAnswersInVLAN(t *testing.T) {
	const tpid = 0x0081 // 802.1Q in network byte order
	for tags := 1; tags <= 2; tags++ {
		t.Run(fmt.Sprint(tags), func(t *testing.T) {
			inPlainScene(t, func(s *plainScene) {
				var push, pop asm.Instructions
				for i := range tags {
					push = append(push, asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, tpid), asm.Mov.Imm(asm.R3, int32(4+tags-i)), asm.FnSkbVlanPush.Call())
					pop = append(pop, asm.Mov.Reg(asm.R1, asm.R6), asm.FnSkbVlanPop.Call())
				}
				s.program(s.client, "server", ebpf.AttachTCXEgress, push...)
				s.program(s.client, "server", ebpf.AttachTCXIngress, pop...)
				s.program(s.server, "client", ebpf.AttachTCXIngress, pop...)
				s.filter(fmt.Sprintf(answering, "vlan: 5"))
				for _, a := range []netip.Addr{plain4, plain6} {
					at := netip.AddrPortFrom(a, 9000)
					r, c := s.receiver(at), s.sender(at)
					before := s.reasons()["echo"].Bytes
					c.Write(make([]byte, 100))
					r.SetReadDeadline(time.Now().Add(patience))
					_, err := r.Read(make([]byte, 200))
					bytes := uint64(14 + 4*tags + 20 + 8 + 100)
					if a.Is6() {
						bytes += 20
					}
					if got := s.reasons()["echo"].Bytes - before; err != nil || got != bytes {
						t.Errorf("%s: %v, %d bytes, want %d", a, err, got, bytes)
					}
					r.Close()
				}
				info, _ := s.stream(netip.AddrPortFrom(plain4, 9000), 4<<20)
				packets := uint64(info.Segs_out)
				got := s.counted("stream", packets)
				bytes := packets*uint64(14+4*tags+20+32) + info.Bytes_sent + 8
				if p, b := int64(got.Packets-packets), int64(got.Bytes-bytes); p < 0 || p > 4 || b < 0 || b > 4*90 {
					t.Errorf("%d packets, %d bytes, want %d, %d", got.Packets, got.Bytes, packets, bytes)
				}
				if tags == 1 { // the kernel gives no connection to a listener for frames with two tags (is_ip() of bpf/ingress.h)
					s.answered(plain4, plain6)
				}
			})
		})
	}
}

// openTun makes a tun device on a host, with the header of virtio in front of packets, and with all offloads.
func (s *plainScene) openTun(h *lab.Host, name string) *os.File {
	s.Helper()
	var f *os.File
	err := h.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		request, _ := unix.NewIfreq(name)
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), name)
		return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6|unix.TUN_F_TSO_ECN|unix.TUN_F_USO4|unix.TUN_F_USO6)
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { f.Close() })
	return f
}

// tunnel connects the hosts by tun devices.
func (s *plainScene) tunnel() (client, server *os.File) {
	s.Helper()
	client, server = s.openTun(s.client, "tun0"), s.openTun(s.server, "tun0")
	for i, h := range []*lab.Host{s.client, s.server} {
		s.on(h, "ip link set tun0 up")
		s.on(h, fmt.Sprintf("ip addr add 10.7.0.%d/24 dev tun0", i+1))
		s.on(h, fmt.Sprintf("ip addr add fd07::%d/64 dev tun0 nodad", i+1))
	}
	carry := func(to, from *os.File) {
		for buf := make([]byte, 1<<17); ; {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			to.Write(buf[:n])
		}
	}
	go carry(client, server)
	go carry(server, client)
	return client, server
}

// TestAnswersOnTun does the same on a device without Ethernet, whose packets come joined and from an untrusted source: the kernel does not say how many
// packets they are.
func TestAnswersOnTun(t *testing.T) {
	inPlainScene(t, func(s *plainScene) {
		_, wire := s.tunnel()
		s.device = "tun0"
		s.filter(fmt.Sprintf(answering, "vlan: none"))
		s.answered(netip.MustParseAddr("10.7.0.2"), netip.MustParseAddr("fd07::2"))
		info, _ := s.stream(netip.MustParseAddrPort("10.7.0.2:9000"), 4<<20)
		packets := uint64(info.Segs_out)
		got := s.counted("stream", packets)
		bytes := packets*(20+32) + info.Bytes_sent + 8
		if p, b := int64(got.Packets-packets), int64(got.Bytes-bytes); p < 0 || p > 4 || b < 0 || b > 4*90 {
			t.Errorf("%d packets, %d bytes, want %d, %d", got.Packets, got.Bytes, packets, bytes)
		}
		at := netip.MustParseAddrPort("10.7.0.2:9000")
		r, c := s.receiver(at), s.sender(at)
		raw, _ := c.SyscallConn()
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1000) })
		c.Write(make([]byte, 20*1000-500))
		count := 0
		for r.SetReadDeadline(time.Now().Add(patience)); count < 20; count++ {
			if _, err := r.Read(make([]byte, 2000)); err != nil {
				t.Error(err)
				break
			}
		}
		if got := s.reasons()["echo"]; got.Packets != 20 || got.Bytes != 20*(28+1000)-500 {
			t.Errorf("%d of 20 received, counted %d packets, %d bytes", count, got.Packets, got.Bytes)
		}
		// Packets that are cut short, and of no known protocol, must not pass as datagrams.
		for n := 1; n < 30; n++ {
			p := make([]byte, 10+n)
			copy(p[10:], []byte{0x45, 0, 0, byte(max(n, 20)), 0, 0, 0, 0, 64, 17})
			wire.Write(p)
			p[10] = 0x60
			wire.Write(p)
			binary.BigEndian.PutUint32(append(p, 0, 0, 0, 0)[10:], 0xffffffff)
			wire.Write(p)
		}
		if got := s.reasons()["echo"]; got.Packets != 20 {
			t.Errorf("short packets count as echo: %+v", got)
		}
	})
}

// TestNotLinear sends datagrams whose payload is in pages of a file, so that only their headers are linear.
func TestNotLinear(t *testing.T) {
	inPlainScene(t, func(s *plainScene) {
		s.on(s.client, "ip link set server mtu 9000")
		s.on(s.server, "ip link set client mtu 9000")
		s.filter("default: pass\nchecks: strict\nrules:\n" +
			"  - {name: any, port: udp/53, dns: {type: [ANY]}, then: truncate}\n" +
			"  - {name: other, port: udp/53, then: drop}\n" +
			"  - {name: at, port: udp/9000, payload: {at: {offset: 4, bytes: \"|de ad be ef|\"}}, then: drop}\n" +
			"  - {name: evil, port: udp/9000, payload: {contains: evil.example, within: 1024}, then: drop}\n")
		query, _ := unhex("123401000001000000000000076578616d706c6503636f6d0000ff0001")
		send := func(c *net.UDPConn, data []byte) {
			f, err := os.Create(t.TempDir() + "/data")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			f.Write(data)
			f.Seek(0, 0)
			raw, _ := c.SyscallConn()
			var n int
			raw.Control(func(fd uintptr) { n, err = unix.Sendfile(int(fd), int(f.Fd()), nil, len(data)) })
			if n != len(data) || err != nil {
				t.Fatalf("sendfile: %d, %v", n, err)
			}
		}
		for _, a := range []netip.Addr{plain4, plain6} {
			c := s.sender(netip.AddrPortFrom(a, 53))
			send(c, query)
			buf := make([]byte, 1500)
			c.SetReadDeadline(time.Now().Add(patience))
			if n, err := c.Read(buf); err != nil || buf[2]&0x82 != 0x82 {
				t.Errorf("%s: %x, %v", a, buf[:n], err)
			}
			at := netip.AddrPortFrom(a, 9000)
			r, c := s.receiver(at), s.sender(at)
			for _, size := range []int{30, 300, 1400, 4000, 8000} {
				for _, where := range []int{0, 12, size - 12, 900} {
					if where+12 > size {
						continue
					}
					data := make([]byte, size)
					copy(data[where:], "evil.example")
					if where+12 <= 1024 {
						send(c, data)
					}
				}
				data := make([]byte, size)
				copy(data[4:], "\xde\xad\xbe\xef")
				send(c, data)
				send(c, make([]byte, size))
				r.SetReadDeadline(time.Now().Add(patience))
				got := make([]byte, 9000)
				if n, err := r.Read(got); err != nil || n != size || strings.Trim(string(got[:n]), "\x00") != "" {
					t.Errorf("%s, size %d: %d bytes, %v", a, size, n, err)
				}
			}
		}
		r := s.reasons()
		t.Logf("any %d, other %d, at %d, evil %d", r["any"].Packets, r["other"].Packets, r["at"].Packets, r["evil"].Packets)
	})
}
