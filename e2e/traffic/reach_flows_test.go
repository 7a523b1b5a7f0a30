// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestReachFlows makes an adversary forge both ends of flows. The adversary sends pairs and triples of frames: one may start a flow, and another
// imitates an answer to it. The host itself only sends to itself, over the loopback device. So no frame is a reply, and the stack may receive only
// packets that the policy passes for every sender. FLOODWALL_LONG=1 sends 200,000 frames for each target and profile of checks.
func TestReachFlows(t *testing.T) {
	for _, home := range homes() {
		t.Run(home.String(), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			seed, frames := uint64(17), 4000
			if os.Getenv("FLOODWALL_LONG") != "" {
				frames = number(t, "FLOODWALL_FRAMES", 200_000)
			}
			if os.Getenv("FLOODWALL_LONG") != "" || os.Getenv("FLOODWALL_SEED") != "" {
				seed = testutil.Seed(t)
			}
			f := &flowSearch{scene: newScene(t), home: home}
			f.listen(t)
			f.converse(t, 7778)
			for i, kind := range []string{"checks: off", "checks: standard", "checks: strict", byStates} {
				f.Rand, f.kind = rand.New(rand.NewPCG(seed, uint64(i))), kind
				f.run(t, frames, seed)
			}
		})
	}
}

// flowSearch searches for frames that reach a host's stack as replies, although the host never sent a packet that they answer.
type flowSearch struct {
	*scene
	*rand.Rand
	home
	kind    string // of the policy
	program *ir.Program
	raw     []rawSocket
}

// forgedTTL is the TTL of all forged frames. It distinguishes them from packets that the host sends to itself.
const forgedTTL = 77

// rawSocket is a raw socket. It receives the packets that reach the stack after all rules.
type rawSocket struct {
	fd    int
	proto int
	v6    bool
}

// forgedPolicy is a policy with %s in place of a line. It opens a port for each protocol, and passes pings.
const forgedPolicy = `devices: [eth0]
default: drop
%s
rules:
  - {name: ping, icmp: echo-request, then: pass}
services: [{name: dns, port: udp/5300}, {name: web, port: tcp/8000}, {name: dhcp, port: udp/67}]
`

// byStates turns off the policy's own handling of replies. stateRule is then added to the policy. This rule passes replies by their conntrack state,
// as existing rulesets do. It also passes packets that conntrack does not track.
const byStates = "replies: drop"

const stateRule = "  - {name: known, state: [established, related, untracked], then: pass}\n"

// forgedEnds are the addresses that an adversary uses for both ends of a flow: the host's own addresses, addresses that no sender has, and other
// addresses.
var forgedEnds = [2][]string{
	{"192.0.2.1", "192.0.2.2", "0.0.0.0", "255.255.255.255", "127.0.0.1", "224.0.0.1", "192.0.2.255", "192.0.2.9", "198.51.100.7"},
	{"2001:db8:ffff::1", "2001:db8:ffff::2", "fe80::ff:fe00:2", "::", "::1", "ff02::1", "2001:db8:ffff::9", "fe80::9"},
}

// listen opens a raw socket for each protocol, and the sockets of the services.
func (f *flowSearch) listen(t *testing.T) {
	t.Helper()
	open := func(domain, kind, proto int) int {
		fd, err := unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	for _, r := range []rawSocket{{0, unix.IPPROTO_UDP, false}, {0, unix.IPPROTO_TCP, false}, {0, unix.IPPROTO_ICMP, false},
		{0, unix.IPPROTO_UDP, true}, {0, unix.IPPROTO_TCP, true}, {0, unix.IPPROTO_ICMPV6, true}} {
		domain := unix.AF_INET
		if r.v6 {
			domain = unix.AF_INET6
		}
		r.fd = open(domain, unix.SOCK_RAW, r.proto)
		err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<24)
		if r.v6 {
			err = errors.Join(err, unix.SetsockoptInt(r.fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1),
				unix.SetsockoptInt(r.fd, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1))
		}
		if err != nil {
			t.Fatal(err)
		}
		f.raw = append(f.raw, r)
	}
	for _, network := range []string{"udp4", "udp6"} {
		c, err := net.ListenPacket(network, ":5300")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			for b := make([]byte, 2000); ; {
				n, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				if from.(*net.UDPAddr).Port != 5300 { // otherwise it would answer itself forever
					c.WriteTo(b[:n], from)
				}
			}
		}()
	}
	l, err := net.Listen("tcp", ":8000")
	if err != nil {
		t.Fatal(err)
	}
	testutil.Serve(t, l, func(c net.Conn) { c.Read(make([]byte, 1)) })
}

// converse makes the host exchange data with itself over UDP and TCP, from the given port to its services.
func (f *flowSearch) converse(t *testing.T, port int) {
	t.Helper()
	for _, own := range []string{forgedEnds[0][0], forgedEnds[1][0]} {
		address := net.ParseIP(own)
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: address, Port: port}, &net.UDPAddr{IP: address, Port: 5300})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		answered := func() bool {
			c.SetDeadline(time.Now().Add(time.Second))
			c.Write([]byte("question")) // an error reports an ICMP answer to an earlier write
			_, err = c.Read(make([]byte, 100))
			return err == nil
		}
		if !testutil.Eventually(30*time.Second, answered) {
			t.Fatal(err)
		}
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: address, Port: port}}
		connection, err := d.Dial("tcp", net.JoinHostPort(own, "8000"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { connection.Close() })
	}
}

// run sends the given number of frames against the policy.
func (f *flowSearch) run(t *testing.T, frames int, seed uint64) {
	t.Helper()
	const together = 64 // frames; a veth's queue has more slots
	text := fmt.Sprintf(forgedPolicy, f.kind)
	if f.kind == byStates {
		text = strings.Replace(text, "rules:\n", "rules:\n"+stateRule, 1)
	}
	c, err := control.CompileSource("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Output(f.target)
	if err == nil {
		_, err = f.Apply(context.Background(), c.Policy, f.options())
	}
	if err != nil {
		t.Fatal(err)
	}
	bare := *out.Plan.Program
	bare.Checks = 0 // the target applies only the checks that it can, so the reference applies none
	f.program = &bare
	f.came(t) // discards the packets that are still queued
	reached, passed, batch := 0, 0, []string{}
	for sent := 0; sent < frames; sent += len(batch) {
		batch = batch[:0]
		for len(batch) < together-3 {
			batch = append(batch, f.sequence()...)
		}
		for _, line := range batch {
			f.put(t, line)
		}
		f.settle(t)
		for _, p := range f.came(t) {
			if verdict, _ := f.program.Eval(&p, world); verdict == ir.Pass {
				passed++
			} else if reached++; reached <= 5 {
				t.Errorf("target %s, %s: the stack got what the policy forbids: protocol %d %s > %s, ports %d %d, flags %#x; seed %d, of\n%s", f.home, f.kind,
					p.Value[packet.Proto], p.Src, p.Dst, p.Value[packet.SPort]&0xffff, p.Value[packet.DPort]&0xffff, p.Value[packet.Flags], seed, strings.Join(batch, "\n"))
			}
		}
	}
	t.Logf("target %s, %s: of %d frames %d came to the stack against the policy, and %d that it passes", f.home, f.kind, frames, reached, passed)
	if passed == 0 {
		t.Error("nothing came to the stack")
	}
}

// sequence returns two or three frames. They usually are a packet that a service may accept, an answer to it, and one of the two again.
func (f *flowSearch) sequence() (lines []string) {
	of := func(list []string) string { return list[f.IntN(len(list))] }
	ends := forgedEnds[f.IntN(2)]
	proto, echo := of([]string{"udp", "tcp", "icmp"}), [2]int{8, 0}
	if proto == "icmp" && ends[0] == forgedEnds[1][0] {
		proto, echo = "icmpv6", [2]int{128, 129}
	}
	a, b := of(ends), of(ends)
	p, q := of([]string{"7777", "7778", "68", "5300", "40000"}), of([]string{"5300", "8000", "67", "5300", "8000", "7777", "68"})
	line := func(back bool, flags string) string {
		from, to, sport, dport, kind := a, b, p, q, echo[0]
		if back {
			from, to, sport, dport, kind = b, a, q, p, echo[1]
		}
		if proto != "udp" && proto != "tcp" {
			return fmt.Sprintf("%s %s > %s type=%d code=0", proto, from, to, kind)
		}
		if proto == "udp" {
			flags = ""
		}
		return strings.TrimSpace(fmt.Sprintf("%s %s > %s %s", proto, end(from, sport), end(to, dport), flags))
	}
	flags := []string{"S", "SA", "A", "R", "FA", "PA"}
	lines = append(lines, line(f.IntN(8) == 0, of(flags)))
	if f.IntN(6) == 0 {
		b = of(ends)
	}
	lines = append(lines, line(f.IntN(8) != 0, of(flags)))
	if f.IntN(2) == 0 {
		if f.IntN(6) == 0 {
			a = of(ends)
		}
		lines = append(lines, line(f.IntN(2) == 0, of(flags)))
	}
	return lines
}

func end(address, port string) string { return net.JoinHostPort(address, port) }

// put sends a packet to the host's Ethernet address, or to the broadcast address.
func (f *flowSearch) put(t *testing.T, line string) {
	t.Helper()
	spec, err := packet.Parse(fmt.Sprint(line, " ttl=", forgedTTL))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	frame := spec.Frame()
	copy(frame, []byte{2, 0, 0, 0, 0, 2})
	if f.IntN(8) == 0 {
		copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	}
	if err := unix.Sendto(f.wire, frame, 0, &f.to); err != nil {
		t.Fatal(err)
	}
}

// came returns the forged packets that the stack has received since the last call, decoded as frames.
func (f *flowSearch) came(t *testing.T) (list []packet.Packet) {
	t.Helper()
	ancillary := make([]byte, 256)
	for _, r := range f.raw {
		for {
			n, size, _, from, err := unix.Recvmsg(r.fd, f.buffer, ancillary, 0)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			frame := append(make([]byte, 12, 80), 0x08, 0)
			if r.v6 {
				dst, hops := ancillaryOf(t, ancillary[:size])
				frame = append(frame[:12], 0x86, 0xdd, 0x60, 0, 0, 0)
				frame = append(binary.BigEndian.AppendUint16(frame, uint16(n)), byte(r.proto), hops)
				src := from.(*unix.SockaddrInet6).Addr
				frame = append(append(frame, src[:]...), dst...)
			}
			if p := packet.Decode(append(frame, f.buffer[:n]...)); p.Value[packet.TTL] == forgedTTL {
				list = append(list, p)
			}
		}
	}
	return list
}

// ancillaryOf returns the destination and the hop limit of an IPv6 packet. They are in the ancillary data of its socket.
func ancillaryOf(t *testing.T, ancillary []byte) (dst []byte, hops uint8) {
	t.Helper()
	messages, err := unix.ParseSocketControlMessage(ancillary)
	for _, m := range messages {
		switch m.Header.Type {
		case unix.IPV6_PKTINFO:
			dst = m.Data[:16]
		case unix.IPV6_HOPLIMIT:
			hops = uint8(binary.NativeEndian.Uint32(m.Data))
		}
	}
	if err != nil || dst == nil {
		t.Fatalf("no destination: %v", err)
	}
	return dst, hops
}
