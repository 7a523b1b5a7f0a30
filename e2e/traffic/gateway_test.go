// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

const onlyReplies = "default: drop\nservices: [{name: mark, port: udp/9}]\n"

// gateway is a scene whose server is a gateway with clients behind it. The attacker's link is its uplink. There the server masquerades the clients'
// IPv4 packets, but not their IPv6 packets.
type gateway struct {
	*scene
	lan    *lab.Host          // has the addresses of all clients except the scanner's
	mac    net.HardwareAddr   // the gateway's address on the clients' link
	secret image.ReplySecrets // keys of the table of reply flows
}

// clients are the clients of a gateway in one address family.
type clients struct {
	honest  []netip.Addr
	scanner netip.Addr // no host has it, so no reset answers the SYN-ACKs
	own     netip.Addr // the scanner's address on the uplink
	server  netip.AddrPort
	scanned netip.Prefix
}

var families = []clients{{
	[]netip.Addr{netip.MustParseAddr("192.168.7.2"), netip.MustParseAddr("192.168.7.3"), netip.MustParseAddr("192.168.7.4")},
	netip.MustParseAddr("192.168.7.66"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddrPort("10.0.0.1:7001"), netip.MustParsePrefix("198.18.0.0/15"),
}, {
	[]netip.Addr{netip.MustParseAddr("fd07::2"), netip.MustParseAddr("fd07::3"), netip.MustParseAddr("fd07::4")},
	netip.MustParseAddr("fd07::66"), netip.MustParseAddr("fd07::66"), netip.MustParseAddrPort("[fd00::1]:7001"), netip.MustParsePrefix("2001:db8::/32"),
}}

func newGateway(s *scene) *gateway {
	s.Helper()
	g := &gateway{scene: s}
	must := func(err error) {
		s.Helper()
		if err != nil {
			s.Fatal(err)
		}
	}
	var err error
	g.lan, err = s.lab.Host("lan")
	must(err)
	ends := lab.LinkOptions{
		A: lab.EndOptions{Queue: true},
		B: lab.EndOptions{Addrs: lab.ParseAddrs("192.168.7.1/24 fd07::1/64")},
	}
	for _, f := range families {
		for _, a := range f.honest {
			ends.A.Addrs = append(ends.A.Addrs, netip.PrefixFrom(a, a.BitLen()*3/4)) // not the prefix of the link
		}
	}
	_, inside, err := s.lab.Connect(g.lan, s.server, ends)
	must(err)
	g.mac = inside.MAC
	must(s.server.Router())
	must(route(g.lan, "0.0.0.0/0 192.168.7.1"))
	must(route(g.lan, "::/0 fd07::1"))
	must(route(s.attacker, "fd07::/64 fd00::2"))
	must(s.server.Do(func() error {
		subject.Nft(s.T, `table ip nat {
	chain postrouting {
		type nat hook postrouting priority srcnat
		oifname attacker masquerade
	}
}`, "-f", "-")
		return nil
	}))
	return g
}

// clientNumber computes the same number as client_number() of bpf/replyclient.h.
func clientNumber(a netip.Addr) uint32 {
	raw := a.AsSlice()
	return 2 + binary.LittleEndian.Uint32(raw[len(raw)-4:])*0x9e3779b1>>16%126
}

// readSecret reads the secrets with which the policy's program finds the bucket of a flow.
func (g *gateway) readSecret() {
	g.Helper()
	g.replyTable(func(_, filter []byte) {
		g.secret = image.ReplySecretsOf(filter)
	})
}

// connected makes each client open the given number of connections through the uplink. The far end will send first on them. It returns both ends of
// each connection.
func (g *gateway) connected(f clients, each int) (list []pushed) {
	g.Helper()
	l, err := g.attacker.Listen(f.server)
	if err != nil {
		g.Fatal(err)
	}
	defer l.Close()
	for i := range each * len(f.honest) {
		from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(f.honest[i%len(f.honest)], 0))
		var p pushed
		err := g.lan.Do(func() (err error) {
			p.own, err = net.DialTCP("tcp", from, net.TCPAddrFromAddrPort(f.server))
			return err
		})
		if err != nil {
			g.Fatal(err)
		}
		if p.peer, err = l.Accept(); err != nil {
			g.Fatal(err)
		}
		g.Cleanup(func() { p.own.Close(); p.peer.Close() })
		list = append(list, p)
	}
	return list
}

// probe is a flow of the scanner. The field own is its source address on the uplink.
type probe struct{ from, own, to netip.AddrPort }

func (f clients) probe(r *rand.Rand) probe {
	to := f.scanned.Addr().AsSlice()
	binary.BigEndian.PutUint16(to[len(to)-2:], uint16(r.Uint32()))
	a, _ := netip.AddrFromSlice(to)
	port := uint16(1024 + r.IntN(60_000))
	return probe{netip.AddrPortFrom(f.scanner, port), netip.AddrPortFrom(f.own, port), netip.AddrPortFrom(a, uint16(1+r.IntN(1000)))}
}

// aimed returns rounds of flows of the scanner. Each round has one flow for each bucket in which a connection is stored.
func (g *gateway) aimed(f clients, at []pushed, rounds int) [][]probe {
	r := testutil.Random(g.T)
	out := make([][]probe, rounds)
	had := map[uint64]int{}
	for _, p := range at {
		had[subject.ReplyBucket(g.secret, p.peer.RemoteAddr().(*net.TCPAddr).AddrPort(), f.server)] = 0
	}
	for missing := rounds * len(had); missing > 0; {
		p := f.probe(r)
		b := subject.ReplyBucket(g.secret, p.own, p.to)
		if n, ok := had[b]; ok && n < rounds {
			had[b]++
			out[n] = append(out[n], p)
			missing--
		}
	}
	return out
}

// scan opens flows of the scanner, and answers each of them.
func (g *gateway) scan(list []probe) {
	g.Helper()
	var syns, answers []string
	for _, p := range list {
		syns = append(syns, fmt.Sprintf("tcp %v > %v S seq=1", p.from, p.to))
		answers = append(answers, fmt.Sprintf("tcp %v > %v SA seq=1 ack=2", p.to, p.own))
	}
	out := g.frames(syns...)
	for _, f := range out {
		copy(f, g.mac)
	}
	g.carry(g.lan, g.attacker, out)
	g.carry(g.attacker, g.lan, g.frames(answers...))
}

// carry sends frames from one host to another through the gateway. It waits until all have arrived, or until no more arrive for a second, because
// frames may wait for a CPU.
func (g *gateway) carry(from, to *lab.Host, frames [][]byte) {
	g.Helper()
	before := arrivals(g.T, to, "server")
	if err := from.Do(func() error { return sendFrames("server", len(frames), frames) }); err != nil {
		g.Fatal(err)
	}
	for last, since := before, time.Now(); last-before < uint64(len(frames)) && time.Since(since) < time.Second; {
		time.Sleep(200 * time.Microsecond)
		if n := arrivals(g.T, to, "server"); n != last {
			last, since = n, time.Now()
		}
	}
}

// TestScanningClient makes one client of a gateway open many flows, which are all answered. The buckets that also have flows of other clients
// overflow. The scanner may displace only its own flows. Replies to the other clients must pass, with and without masquerading.
func TestScanningClient(t *testing.T) {
	const each, rounds = 20, 24
	inScene(t, func(s *scene) {
		g := newGateway(s)
		g.apply(plan.TargetXDP, onlyReplies)
		g.readSecret()
		var all []pushed
		for _, f := range families {
			for _, a := range f.honest {
				for _, other := range families {
					if clientNumber(a) == clientNumber(other.scanner) {
						t.Fatalf("%v and %v have one number: the test says nothing", a, other.scanner)
					}
				}
			}
			open := g.connected(f, each)
			for _, list := range g.aimed(f, open, rounds) {
				g.scan(list)
			}
			all = append(all, open...)
		}
		if testutil.Long() {
			r := testutil.Random(t)
			list := make([]probe, 400)
			for range 1_000_000 / len(list) { // IPv6 only: masquerading needs conntrack, whose table is too small for so many
				for i := range list {
					list[i] = families[1].probe(r)
				}
				g.scan(list)
			}
		}
		if lost := news(all); len(lost) > 0 {
			t.Errorf("nothing comes to %d of %d clients: %v", len(lost), len(all), lost)
		}
		g.overflowed(uint64(len(all) * (rounds - image.ReplySlots)))
	})
}

// news makes the far end of each connection send data. It returns the clients that do not receive the data.
func news(list []pushed) (lost []net.Addr) {
	for _, p := range list {
		p.peer.Write([]byte("news"))
	}
	end := time.Now().Add(patience)
	for _, p := range list {
		p.own.SetReadDeadline(end)
		if _, err := io.ReadFull(p.own, make([]byte, 4)); err != nil {
			lost = append(lost, p.own.LocalAddr())
			end = time.Now().Add(100 * time.Millisecond) // all others have had the time
		}
	}
	return lost
}

// overflowed checks that at least the given number of flows were displaced. With fewer, the test would prove little.
func (g *gateway) overflowed(want uint64) {
	g.Helper()
	if n := g.replyFlows().Displaced; n < want {
		g.Errorf("%d flows were displaced, want %d", n, want)
	}
}

// TestReplyByAnotherUplink sends packets through one uplink, and their answers return through another, as with two providers or routers. The policy
// covers both uplinks.
func TestReplyByAnotherUplink(t *testing.T) {
	inScene(t, func(s *scene) {
		if _, _, err := s.lab.Connect(s.client, s.attacker, lab.LinkOptions{
			A: lab.EndOptions{Addrs: lab.ParseAddrs("10.2.0.1/24 fd02::1/64")},
			B: lab.EndOptions{Addrs: lab.ParseAddrs("10.2.0.2/24 fd02::2/64 203.0.113.7/32 2001:db8::7/128")},
		}); err != nil {
			t.Fatal(err)
		}
		far := []string{"203.0.113.7", "2001:db8::7"}
		for _, h := range []*lab.Host{s.client, s.attacker, s.server} {
			if err := h.Router(); err != nil {
				t.Fatal(err)
			}
		}
		for h, routes := range map[*lab.Host][]string{
			s.server:   {"203.0.113.0/24 10.1.0.1", "2001:db8::/64 fd01::1"}, // the packets leave by the client's link,
			s.client:   {"203.0.113.0/24 10.2.0.2", "2001:db8::/64 fd02::2"},
			s.attacker: {"10.1.0.0/24 10.0.0.2", "fd01::/64 fd00::2"}, // the answers come back by the attacker's link
		} {
			for _, r := range routes {
				if err := route(h, r); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, a := range far {
			s.answerAt(s.attacker, netip.AddrPortFrom(netip.MustParseAddr(a), 7001))
		}
		for _, target := range targets {
			s.apply(target, onlyReplies)
			before := arrivals(t, s.server, "attacker")
			for _, a := range far {
				for _, network := range []string{"tcp", "udp"} {
					if err := s.ask(network, netip.AddrPortFrom(netip.MustParseAddr(a), 7001)); err != nil {
						t.Errorf("%s: %s to %s: %v", target, network, a, err)
					}
				}
			}
			if n := arrivals(t, s.server, "attacker") - before; n < 8 { // three for each TCP connection, and one for each UDP exchange
				t.Errorf("%d packets came by the other uplink: the test says nothing", n)
			}
		}
	})
}

// answerAt makes a host return all data that arrives at one of its addresses, over TCP and UDP.
func (s *scene) answerAt(h *lab.Host, at netip.AddrPort) {
	s.Helper()
	l, err := h.Listen(at)
	if err != nil {
		s.Fatal(err)
	}
	testutil.Serve(s.T, l, func(c net.Conn) { io.Copy(c, c) })
	var c net.PacketConn
	err = h.Do(func() error {
		c, err = net.ListenPacket("udp", at.String())
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	go func() {
		for buf := make([]byte, 100); ; {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			c.WriteTo(buf[:n], from)
		}
	}()
}

// ask makes the server send data, and waits until it is returned. It sends a datagram again if no answer comes, because the first packets on a link
// may be lost.
func (s *scene) ask(network string, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	c, err := s.server.Dial(ctx, network, to)
	if err != nil {
		return err
	}
	defer c.Close()
	if network == "tcp" {
		c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write([]byte("question")); err != nil {
			return err
		}
		_, err = io.ReadFull(c, make([]byte, 8))
		return err
	}
	testutil.Eventually(patience, func() bool {
		c.SetDeadline(time.Now().Add(time.Second))
		if _, err = c.Write([]byte("question")); err == nil {
			_, err = io.ReadFull(c, make([]byte, 8))
		}
		return err == nil
	})
	return err
}

// arrivals returns the number of packets that a host's device has received.
func arrivals(t *testing.T, h *lab.Host, device string) (n uint64) {
	t.Helper()
	err := h.Do(func() error {
		dev, err := netlink.LinkByName(device)
		if err == nil {
			n = dev.Attrs().Statistics.RxPackets
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
