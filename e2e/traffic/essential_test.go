// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/test/testutil"
)

// essentialPolicy drops all packets except the essential ones and those to two services.
const essentialPolicy = `
default: drop
checks: strict
essential: {echo: on}
services:
  - {name: web, port: tcp/80}
  - {name: mark, port: udp/9}
`

// forged are packets that imitate essential ones. Some of them can be distinguished from genuine ones.
var forged = []struct {
	name string
	line string // with %s for the source
	v6   bool
	most int // how many of 100 packets may reach the stack at once
}{
	{"DHCP, random sources", "udp %s:67 > 10.0.0.2:68 payload=0x00", false, 25},
	{"DHCPv6, random sources", "udp [%s]:547 > [fd00::2]:546 payload=0x00", true, 25},
	{"listener query from afar", "icmpv6 %s > fd00::2 type=130 ttl=1", true, 0},
	{"listener report from afar", "icmpv6 %s > fd00::2 type=143 ttl=1", true, 0},
	{"listener query, passed on", "icmpv6 fe80::99 > fd00::2 type=130 ttl=2", false, 0},
	{"router advertisement, no link-local source", "icmpv6 %s > fd00::2 type=134", true, 0},
	{"redirect, no link-local source", "icmpv6 %s > fd00::2 type=137", true, 0},
	{"neighbor solicitation, passed on", "icmpv6 %s > fd00::2 type=135 ttl=254", true, 0},
	{"router advertisement, code 1", "icmpv6 fe80::99 > fd00::2 type=134 code=1", false, 0},
	{"redirect, code 1", "icmpv6 fe80::99 > fd00::2 type=137 code=1", false, 0},
	{"router solicitation, code 255", "icmpv6 fe80::99 > fd00::2 type=133 code=255", false, 0},
	{"neighbor solicitation, code 1", "icmpv6 fd00::1 > fd00::2 type=135 code=1", false, 0},
	{"neighbor advertisement, code 2", "icmpv6 fd00::1 > fd00::2 type=136 code=2", false, 0},
	{"router advertisement in a first fragment", "icmpv6 fe80::99 > fd00::2 type=134 frag=first payload=0x0000000000000000", false, 0},
	{"neighbor advertisement in a first fragment", "icmpv6 fd00::1 > fd00::2 type=136 frag=first payload=0x0000000000000000", false, 0},
}

// sources returns n random routable addresses.
func sources(r *rand.Rand, v6 bool, n int) (list []string) {
	for range n {
		if v6 {
			list = append(list, fmt.Sprintf("2600:%x:%x::%x", r.IntN(1<<16), r.IntN(1<<16), r.IntN(1<<16)))
			continue
		}
		list = append(list, fmt.Sprintf("%d.%d.%d.%d", 11+r.IntN(100), r.IntN(256), r.IntN(256), 1+r.IntN(254)))
	}
	return list
}

// lines returns a copy of line for each source, with the source in place of %s.
func lines(line string, from []string) (out []string) {
	for _, source := range from {
		out = append(out, strings.Replace(line, "%s", source, 1))
	}
	return out
}

// TestForgedEssentials sends 100 packets of each kind in forged. It checks how many reach the server's stack. No genuine sender sends such packets.
func TestForgedEssentials(t *testing.T) {
	inScene(t, func(s *scene) {
		r := rand.New(rand.NewPCG(1, 2))
		s.listen("0.0.0.0:68", "[::]:546")
		for _, target := range targets {
			s.apply(target, essentialPolicy)
			for _, f := range forged {
				from := sources(r, f.v6, 100)
				before := s.stack()
				start := time.Now()
				s.send(100, s.frames(lines(f.line, from)...))
				came := int(s.settled(before).all())
				most := f.most + int(20*time.Since(start).Seconds())*min(f.most, 1)
				if came > most {
					t.Errorf("%s: %s: %d of 100 packets came to the stack, at most %d should", target, f.name, came, most)
				}
			}
			s.trueEssentials(target)
		}
	})
}

// genuine are packets that must reach the stack.
var genuine = []string{
	"udp 10.0.0.1:67 > 10.0.0.2:68 payload=0x00", "udp [fe80::99]:547 > [fd00::2]:546 payload=0x00", "udp [2600::9]:547 > [fd00::2]:546 payload=0x00",
	"icmpv6 fe80::99 > ff02::1 type=130 ttl=1", "icmpv6 fe80::99 > fd00::2 type=134", "icmpv6 fd00::1 > fd00::2 type=136",
	"icmpv6 fe80::99 > fd00::2 type=133", "icmpv6 :: > fd00::2 type=133", "icmpv6 fd00::1 > fd00::2 type=135", "icmpv6 fe80::99 > fd00::2 type=137",
	"icmp 10.0.0.9 > 10.0.0.2 type=3 code=4", "icmpv6 2600::9 > fd00::2 type=2",
}

// trueEssentials sends one packet of each kind in genuine. Each packet must reach the stack.
func (s *scene) trueEssentials(target any) {
	s.Helper()
	time.Sleep(100 * time.Millisecond) // the forged packets have used up the limit of DHCP, 20 a second
	for _, line := range genuine {
		before := s.stack()
		s.send(1, s.frames(line))
		came := s.settled(before).all()
		if came == 0 { // it went through another queue than the datagram behind it, and waits for a CPU
			testutil.Eventually(patience, func() bool { came = s.stack().less(before).all(); return came > 0 })
		}
		if came != 1 {
			s.Errorf("%v: %s did not come to the stack", target, line)
		}
	}
}

// settled returns the number of packets that have reached the stack since before. It first sends another datagram and waits until it arrives. All
// packets that were sent earlier have then been handled.
func (s *scene) settled(before stack) stack {
	s.Helper()
	for range 100 {
		last := s.stack()
		s.send(1, s.frames("udp 10.0.0.1:9 > 10.0.0.2:9 payload=0x00"))
		for range 50 {
			now := s.stack()
			if now.marks > last.marks {
				return now.less(before)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	s.Fatal("what is sent behind a flood never comes")
	return stack{}
}

// flood is a flood of packets that match a rule. It exceeds the rule's limit several times.
type flood struct {
	rule   string
	line   string
	v6     bool
	random bool // the sources are random; otherwise they are all in one network
	packets,
	burst, rate int // of the limit that the flood exceeds
}

var floods = []flood{
	{"icmp-errors", "icmp %s > 10.0.0.2 type=3 code=3", false, true, 40_000, 10_000, 10_000},
	{"icmpv6-errors", "icmpv6 %s > fd00::2 type=1 code=4", true, true, 40_000, 10_000, 10_000},
	{"dhcp", "udp %s:67 > 10.0.0.2:68 payload=0x00", false, true, 2000, 20, 20},
	{"dhcpv6", "udp [fe80::%s]:547 > [fd00::2]:546 payload=0x00", false, false, 2000, 100, 100},
	{"dhcpv6-global", "udp [%s]:547 > [fd00::2]:546 payload=0x00", true, true, 2000, 20, 20},
	{"multicast", "icmpv6 fe80::%s > ff02::1 type=130 ttl=1", false, false, 8000, 1000, 1000},
	{"routers", "icmpv6 fe80::%s > fd00::2 type=137", false, false, 8000, 1000, 1000},
	{"neighbors", "icmpv6 fe80::%s > fd00::2 type=136", false, false, 80_000, 20_000, 20_000},
	{"fragments", "udp %s > 10.0.0.2 frag=later", false, true, 40_000, 10_000, 10_000},
	{"fragments-ipv6", "udp %s > fd00::2 frag=later", true, true, 40_000, 10_000, 10_000},
	{"echo", "icmp %s > 10.0.0.2 echo-reply", false, true, 8000, 1000, 1000},
	{"echo-ipv6", "icmpv6 %s > fd00::2 type=129", true, true, 8000, 1000, 1000},
}

// frames returns a thousand packets of a flood, each with a source of its own.
func (f *flood) frames(s *scene, r *rand.Rand) [][]byte {
	from := sources(r, f.v6, 1000)
	if !f.random {
		for i := range from {
			from[i] = fmt.Sprintf("%x", i+0x100)
		}
	}
	return s.frames(lines(f.line, from)...)
}

// TestEssentialFloods sends a flood against each rule that `default: drop` adds. No more packets may reach the stack than the rule's limit allows.
// The other packets must be counted under the rule's name. The client must get its answers as if there were no flood.
func TestEssentialFloods(t *testing.T) {
	inScene(t, func(s *scene) {
		r := rand.New(rand.NewPCG(3, 4))
		s.listen("0.0.0.0:68", "[::]:546")
		s.serve(80)
		for _, target := range targets {
			text := essentialPolicy
			if target == plan.TargetIptables {
				text += "replies: drop\n" // conntrack, which recognizes replies, hides fragments from iptables
			}
			s.apply(target, text)
			for _, f := range floods {
				frames := f.frames(s, r)
				stop, answered, failed := make(chan struct{}), 0, 0
				done := make(chan struct{})
				go func() {
					answered, failed = s.requests("10.1.0.2:80", stop)
					close(done)
				}()
				before, start := s.stack(), time.Now()
				for range 20 { // a busy machine loses most of a flood before the policy sees it
					s.send(f.packets, frames)
					if s.counted("essential:"+f.rule+":limited") > uint64(f.burst) {
						break
					}
				}
				close(stop)
				<-done
				came := int(s.settled(before).all())
				most := int(1.1 * (float64(f.burst) + float64(f.rate)*time.Since(start).Seconds()))
				if came > most {
					t.Errorf("%s: of %d packets through %s %d came to the stack, at most %d should", target, f.packets, f.rule, came, most)
				}
				unseen := target == plan.TargetNftables && f.rule == "fragments-ipv6" // conntrack reassembles these, and the stack counts none
				if came < f.burst/2 && !unseen {
					t.Errorf("%s: of %d packets through %s only %d came to the stack", target, f.packets, f.rule, came)
				}
				if failed > 0 {
					t.Errorf("%s: beside a flood through %s %d requests were answered and %d were not", target, f.rule, answered, failed)
				}
				limited := s.counted("essential:" + f.rule + ":limited")
				t.Logf("%s: %s: %d came to the stack, %d limited, %d requests answered", target, f.rule, came, limited, answered)
				if limited == 0 {
					t.Errorf("%s: nothing is counted as essential:%s:limited", target, f.rule)
				}
			}
		}
	})
}

// tooBig returns an ICMP error from a router. It says that a UDP datagram from the server to the client was too long for the next link.
func (s *scene) tooBig(router string, sport, dport uint16, mtu uint16) []byte {
	quoted := make([]byte, 28) // an IP header and a UDP header
	quoted[0], quoted[8], quoted[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(quoted[2:], 1400)
	copy(quoted[12:], net.IPv4(10, 1, 0, 2).To4())
	copy(quoted[16:], net.IPv4(10, 1, 0, 1).To4())
	binary.BigEndian.PutUint16(quoted[10:], ^sum16(quoted[:20], 0))
	binary.BigEndian.PutUint16(quoted[20:], sport)
	binary.BigEndian.PutUint16(quoted[22:], dport)
	binary.BigEndian.PutUint16(quoted[24:], 1380)
	frame := s.frames(fmt.Sprintf("icmp %s > 10.1.0.2 type=3 code=4 payload=0x%x", router, quoted))[0]
	icmp := frame[14+20:]
	binary.BigEndian.PutUint16(icmp[6:], mtu)
	binary.BigEndian.PutUint16(icmp[2:], 0)
	binary.BigEndian.PutUint16(icmp[2:], ^sum16(icmp, 0))
	return frame
}

// sum16 returns the Internet checksum (RFC 1071) before it is complemented.
func sum16(b []byte, sum uint32) uint16 {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// TestPathMTUBesideFlood makes a router report that packets are too long, during a flood of ICMP errors from one network. On xdp and nftables, where
// limits are by source, the report must reach the server.
func TestPathMTUBesideFlood(t *testing.T) {
	inScene(t, func(s *scene) {
		noise := s.frames(lines("icmp 11.1.1.%s > 10.0.0.2 type=3 code=4", []string{"1", "2", "3"})...)
		for i, target := range targets[:2] {
			s.apply(target, essentialPolicy)
			to := netip.MustParseAddrPort(fmt.Sprintf("10.1.0.1:%d", 6000+i))
			conn, err := s.server.Dial(s.ctx, "udp", to)
			if err != nil {
				t.Fatal(err)
			}
			sport := conn.LocalAddr().(*net.UDPAddr).Port
			mtu := uint16(1200 - i)
			var got int
			for range 50 { // a full queue may drop the noise or the error
				s.send(2000, noise)
				s.send(1, [][]byte{s.tooBig("198.51.100.9", uint16(sport), to.Port(), mtu)})
				s.settled(stack{})
				if got, err = pathMTU(conn.(*net.UDPConn)); err != nil || got == int(mtu) {
					break
				}
			}
			if err != nil || got != int(mtu) {
				t.Errorf("%s: the path MTU is %d (%v), and the router said %d", target, got, err, mtu)
			}
			conn.Close()
		}
	})
}

// pathMTU returns the path MTU that the kernel uses for a connected socket.
func pathMTU(c *net.UDPConn) (mtu int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := raw.Control(func(fd uintptr) { mtu, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU) })
	if cerr != nil {
		return 0, cerr
	}
	return mtu, err
}
