// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// sameSum returns a flow from own whose hash equals that of a victim's flow, in an earlier form of the hash with public factors. number selects one
// of many such flows. That hash covered the last half of one address, the last word of the other address, and the ports. So an attacker could compute
// flows for a bucket.
func sameSum(victim conversation, kind uint64, own netip.AddrPort, number int) conversation {
	half := func(a netip.Addr) uint64 { b := a.As16(); return binary.LittleEndian.Uint64(b[8:]) }
	far := func(own, other netip.AddrPort) uint64 {
		a := own.Addr().As16()
		return uint64(image.ReplyPorts(other.Port(), own.Port()))<<32 | uint64(binary.LittleEndian.Uint32(a[12:]))
	}
	other := netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(3000+number))
	sum := half(victim.other.Addr()) + (far(victim.own, victim.other)-far(own, other))*kind
	address := [16]byte{0x20, 1, 0xd, 0xb8, 0, 1, byte(number >> 8), byte(number)}
	binary.LittleEndian.PutUint64(address[8:], sum)
	return conversation{own, netip.AddrPortFrom(netip.AddrFrom16(address), other.Port())}
}

// guardedGame loads a program that passes replies and protects a UDP service.
func guardedGame(t *testing.T) flooded {
	t.Helper()
	s := subject.Lower(t, "default: drop\nservices: [{name: game, port: udp/7000, udp: protect}]\n")
	x, err := xdpgen.Generate(s.Program, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	return flooded{talker{s.Load(t, x)}, s.Program}
}

// forward sends out a packet that arrived through another device.
func (p talker) forward(t testing.TB, line string) {
	t.Helper()
	from := forwarded()
	o := ebpf.RunOptions{Data: subject.FramesOf(t, line)[0].Frame, Context: from, ContextOut: make([]byte, len(from)), Repeat: 1}
	if _, err := p.Egress().Run(&o); err != nil {
		t.Fatal(err)
	}
}

// TestComputedBuckets plays attackers who compute flows for a victim's bucket from the source code, without the secrets. No victim may lose an
// answer.
func TestComputedBuckets(t *testing.T) {
	testutil.RequireRoot(t)
	const rounds = 20
	ends := netip.MustParseAddrPort
	own, service := "2001:db8::1", ends("[2001:db8::1]:7000")
	send := func(proto string, c conversation, flags string) string {
		return fmt.Sprintf("%s %s > %s%s", proto, c.own, c.other, flags)
	}
	back := func(proto string, c conversation, flags string) string {
		return fmt.Sprintf("%s %s > %s%s", proto, c.other, c.own, flags)
	}
	frame := func(line string) []byte { return subject.FramesOf(t, line)[0].Frame }
	for name, attack := range map[string]func(p flooded, round int) bool{
		"clients that a blind sender forges, against questions of this host": func(p flooded, round int) bool {
			v := conversation{ends("[2001:db8::1]:123"), ends(fmt.Sprintf("[2001:db8:7::%x]:123", 1+round))}
			p.leave(t, frame(send("udp", v, "")))
			for i := range 160 {
				p.leave(t, frame(send("udp", sameSum(v, image.ReplyUDP, service, i), "")))
			}
			return p.arrive(t, frame(back("udp", v, "")))
		},
		"a client behind a gateway, with 8 addresses, against another": func(p flooded, round int) bool {
			v := conversation{ends(fmt.Sprintf("[2001:db8:1::5]:%d", 40000+round)), ends("[2001:db8:7::7]:443")}
			p.forward(t, send("tcp", v, " S"))
			for i := range 80 {
				a := netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("2001:db8:1::6:%x", 1+i%8)), 50000)
				p.forward(t, send("tcp", sameSum(v, image.ReplyTCP, a, i), " S"))
			}
			return p.arrive(t, frame(back("tcp", v, " SA")))
		},
		"a user of this host, against an idle connection of another": func(p flooded, round int) bool {
			v := conversation{ends(fmt.Sprintf("[2001:db8::1]:%d", 40000+round)), ends("[2001:db8:7::7]:443")}
			p.leave(t, frame(send("tcp", v, " S")))
			p.arrive(t, frame(back("tcp", v, " SA")))
			for i := range 12 {
				c := sameSum(v, image.ReplyTCP, ends(fmt.Sprintf("[%s]:%d", own, 50000+i)), i)
				p.leave(t, frame(send("tcp", c, " S")))
				p.arrive(t, frame(back("tcp", c, " SA")))
			}
			return p.arrive(t, frame(back("tcp", v, " A")))
		},
		"forged clients, against one that becomes known": func(p flooded, round int) bool {
			v := conversation{service, ends(fmt.Sprintf("[2001:db8:7::7]:%d", 40000+round))}
			for range ir.KnownTimes {
				p.arrive(t, frame(back("udp", v, "")))
				p.leave(t, frame(send("udp", v, "")))
				for i := range 24 {
					p.leave(t, frame(send("udp", sameSum(v, image.ReplyUDP, service, i), "")))
				}
				p.age(t, 1)
			}
			return p.reason(t, frame(back("udp", v, ""))) == "game:known"
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, passed := guardedGame(t), 0
			for round := range rounds {
				if attack(p, round) {
					passed++
				}
			}
			if passed < rounds {
				t.Errorf("%d of %d victims get their answers", passed, rounds)
			}
		})
	}
}

// TestReplyPeers checks a host with many peers on one port, such as the hub of a VPN. The addresses of the peers have the same last words.
func TestReplyPeers(t *testing.T) {
	testutil.RequireRoot(t)
	p := loadReplies(t)
	peer := func(i int) string { return fmt.Sprintf("[2001:db8:%x::1]:51820", 1+i) }
	for i := range 100 {
		p.leave(t, subject.FramesOf(t, "udp [2001:db8::1]:51820 > "+peer(i))[0].Frame)
	}
	for i := range 100 {
		if !p.arrive(t, subject.FramesOf(t, "udp "+peer(i)+" > [2001:db8::1]:51820")[0].Frame) {
			t.Errorf("the answer of peer %d of 100 is dropped", i)
		}
	}
}

// TestGuestsShare floods a bucket with answers of a service to forged clients. Their flows must take at most half of the bucket, and must not
// displace a flow that began inside, whether it was answered or not. New flows from inside must displace them.
func TestGuestsShare(t *testing.T) {
	testutil.RequireRoot(t)
	p := guardedGame(t)
	secrets, _, _ := p.filters(t)
	r, own := rand.New(rand.NewPCG(5, 6)), netip.MustParseAddr("192.0.2.1")
	const number = 5
	in := func(b uint64) bool { return b == number }
	guests := func(n int) {
		for range n {
			to := subject.ClientInReplyBucket(r, secrets, netip.AddrPortFrom(own, 7000), in)
			p.leave(t, subject.FramesOf(t, fmt.Sprintf("udp %s:7000 > %s", own, to))[0].Frame)
		}
	}
	held := func() int {
		memory, release, err := p.Memory(image.ReplyFlows)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		return guestsIn(memory[image.ReplyFlows][number*image.ReplyBucketSize:][:image.ReplyBucketSize])
	}
	guests(20)
	if n := held(); n != image.ReplySlots/2 {
		t.Errorf("forged clients have %d places of an empty bucket of %d", n, image.ReplySlots)
	}
	var lines []string
	for i := range image.ReplySlots { // two flows of this host, and one of each of six hosts behind it
		from := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		if i < 2 {
			from = own
		}
		a, b := subject.InReplyBucket(r, secrets, from, in)
		line := fmt.Sprintf("%s > %s", a, b)
		if i < 2 {
			p.leave(t, subject.FramesOf(t, "udp "+line)[0].Frame)
		} else {
			p.forward(t, "udp "+line)
		}
		lines = append(lines, fmt.Sprintf("udp %s > %s", b, a))
		guests(10)
	}
	if n := held(); n > 0 {
		t.Errorf("forged clients keep %d places of a bucket that the inside needs", n)
	}
	for _, line := range lines {
		if !p.arrive(t, subject.FramesOf(t, line)[0].Frame) {
			t.Errorf("%s: the answer is dropped", line)
		}
	}
	p.age(t, 1000) // all flows have expired
	guests(20)
	if n := held(); n != image.ReplySlots/2 {
		t.Errorf("forged clients have %d places of a bucket of %d where all is over", n, image.ReplySlots)
	}
}

// TestForgedAnswers makes a service answer forged IPv4 clients for an hour of simulated time, in three floods. They must take at most half of the
// table. Clients behind the gateway open connections when each flood begins. None of these may lose its place during that flood or a later one.
func TestForgedAnswers(t *testing.T) {
	testutil.RequireRoot(t)
	p, r := guardedGame(t), rand.New(rand.NewPCG(7, 8))
	answer := subject.FramesOf(t, "udp 192.0.2.1:7000 > 203.0.113.1:4000")[0].Frame
	const destination, port = 14 + 16, 14 + 20 + 2
	const minutes20, wave = 280, 20 // in units of the table: 2^32 ns
	var lan []conversation
	for flood := range 3 {
		most := 0.0
		for i := range 200 {
			own := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(2 + i%50)}), uint16(40000+1000*flood+i))
			c := conversation{own, netip.MustParseAddrPort("198.51.100.7:443")}
			lan = append(lan, c)
			p.forward(t, c.out()+" S")
			if !p.arrive(t, subject.FramesOf(t, c.in()+" SA")[0].Frame) {
				t.Errorf("flood %d: %s is not answered", flood, c.out())
			}
			p.forward(t, c.out()+" A")
		}
		for range minutes20 / wave {
			for range testutil.Scaled(1500, 800_000) {
				binary.BigEndian.PutUint32(answer[destination:], r.Uint32())
				binary.BigEndian.PutUint16(answer[port:], uint16(1024+r.IntN(60_000)))
				p.leave(t, answer)
			}
			most = max(most, p.clients(t))
			p.age(t, wave)
		}
		lost := 0
		for _, c := range lan {
			if !p.arrive(t, subject.FramesOf(t, c.in()+" A")[0].Frame) {
				lost++
			}
		}
		t.Logf("flood %d: %.1f%% of the table at most, %d words of a bucket are of clients", flood, 100*most, p.mostGuests(t))
		if most > 0.5 || lost > 0 || p.mostGuests(t) > image.ReplySlots/2 {
			t.Errorf("flood %d: %.1f%% of the table, %d words of a bucket are of clients; %d of %d connections from inside are lost",
				flood, 100*most, p.mostGuests(t), lost, len(lan))
		}
	}
}

// clients returns the share of the table that flows of new clients of services take.
func (p talker) clients(t *testing.T) float64 {
	t.Helper()
	table, err := p.ReplyFlows()
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	n := table.Occupancy()
	return float64(n.New) / float64(n.Fit)
}

// mostGuests returns the largest number of words in one bucket that belong to clients of services.
func (p talker) mostGuests(t *testing.T) (most int) {
	t.Helper()
	memory, release, err := p.Memory(image.ReplyFlows)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for words := memory[image.ReplyFlows]; len(words) > 0; words = words[image.ReplyBucketSize:] {
		most = max(most, guestsIn(words[:image.ReplyBucketSize]))
	}
	return most
}

// guestsIn returns the number of words in a bucket that belong to clients of services.
func guestsIn(bucket []byte) (n int) {
	for ; len(bucket) > 0; bucket = bucket[8:] {
		if binary.LittleEndian.Uint64(bucket)>>16&15 >= image.ReplyClientNew {
			n++
		}
	}
	return n
}

// TestQuotedExtensions sends ICMP errors of a router. They quote packets with extension headers, packets with IPv4 options, and first fragments. Such
// errors must count as replies. An error about a later fragment contains no ports, and must not count as a reply.
func TestQuotedExtensions(t *testing.T) {
	testutil.RequireRoot(t)
	p := loadReplies(t)
	const flow = "udp [2001:db8::1]:4000 > [2001:db8:7::7]:53"
	p.leave(t, subject.FramesOf(t, flow)[0].Frame)
	p.leave(t, subject.FramesOf(t, "udp 192.0.2.1:4000 > 198.51.100.7:53")[0].Frame)
	for quoted, want := range map[string]bool{
		flow: true, flow + " ext=dst": true, flow + " ext=hbh,dst": true, flow + " ext=hbh,rh2,dst": true, flow + " frag=first": true, flow + " ext=dst frag=first": true,
		"udp [2001:db8::1]:4001 > [2001:db8:7::7]:53 ext=dst": false, flow + " frag=later": false,
		"udp 192.0.2.1:4000 > 198.51.100.7:53": true, "udp 192.0.2.1:4000 > 198.51.100.7:53 frag=first": true, "udp 192.0.2.1:4000 > 198.51.100.7:53 frag=later": false,
		"udp 192.0.2.1:4000 > 198.51.100.7:53 ipopts=94040000": true, "udp 192.0.2.1:4001 > 198.51.100.7:53 ipopts=94040000": false,
	} {
		const ethernet, icmp = 14, 8
		about := subject.FramesOf(t, quoted)[0].Frame[ethernet:]
		line, header := "icmpv6 2001:db8:9::9 > 2001:db8::1 type=2 code=0", 40
		if about[0]>>4 == 4 {
			line, header = "icmp 203.0.113.9 > 192.0.2.1 type=3 code=4", 20
		}
		frame := subject.FramesOf(t, fmt.Sprintf("%s len=%d", line, header+icmp+len(about)))[0].Frame
		copy(frame[ethernet+header+icmp:], about)
		if got := p.arrive(t, frame); got != want {
			t.Errorf("an error about %s: is a reply is %t", quoted, got)
		}
	}
}
