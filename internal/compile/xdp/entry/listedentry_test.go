// SPDX-License-Identifier: Apache-2.0

package entry_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// among alternates rules for all sources with rules for listed sources. Some of their ports overlap.
const among = `default: drop
sets: {a: [192.0.2.0/25, "2001:db8:a::/48"], b: [192.0.2.64/26, "2001:db8:a:b::/64"], c: [198.51.100.7]}
rules:
  - {name: a1, from: $a, proto: udp, port: 10-12, then: drop}
  - {name: all1, proto: udp, port: 12-14, then: pass}
  - {name: b1, from: $b, proto: udp, port: 13-20, then: drop}
  - {name: not-c, not: {from: $c}, proto: udp, port: 30, then: pass}
  - {name: all2, proto: udp, port: [22, 40-42], then: pass}
  - {name: c1, from: $c, proto: udp, port: 41, sport: 7, then: drop}
  - {name: a2, from: $a, proto: udp, port: 42-50, then: pass}
  - {name: all3, proto: udp, port: 45, then: pass}
  - {name: b2, from: $b, then: drop}
  - {name: all4, proto: udp, port: 60, then: pass}
`

// TestListedAmong sends packets from sources of all classes to all ports of the rules.
func TestListedAmong(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for port := range 64 {
		for _, source := range []string{"192.0.2.1", "192.0.2.65", "192.0.2.129", "198.51.100.7", "9.9.9.9"} {
			fmt.Fprintf(&lines, "udp %s:7 > 10.0.0.1:%d\ntcp %s:7 > 10.0.0.1:%d S\n", source, port, source, port)
		}
		for _, source := range []string{"2001:db8:a::1", "2001:db8:a:b::1", "2606::1"} {
			fmt.Fprintf(&lines, "udp [%s]:7 > [2001:db8::1]:%d\n", source, port)
		}
	}
	s := subject.Lower(t, among)
	s.Agree(t, subject.FramesOf(t, lines.String()))
}

// TestListedInEntry checks which part of the program decides a packet: packets from listed sources that match no rule for listed sources, and a
// packet that matches both a rule for all sources and a rule for listed sources.
func TestListedInEntry(t *testing.T) {
	t.Parallel()
	testutil.RequireRoot(t)
	s := subject.Lower(t, among)
	x, err := xdpgen.Generate(s.Program, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	p := s.Load(t, x)
	for line, want := range map[string]bool{
		"udp 192.0.2.1:7 > 10.0.0.1:1": true, "udp 192.0.2.1:7 > 10.0.0.1:11": true, "udp 192.0.2.1:7 > 10.0.0.1:22": true,
		"udp 192.0.2.1:7 > 10.0.0.1:60": true, "udp 198.51.100.7:7 > 10.0.0.1:12": true,
		"udp 198.51.100.7:7 > 10.0.0.1:30": false, "udp 198.51.100.7:7 > 10.0.0.1:41": false, "udp 192.0.2.1:7 > 10.0.0.1:42": false,
	} {
		answer, err := datapath.Ask(p.Native(), subject.QuestionKey, subject.FramesOf(t, line)[0].Frame)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Entry != want {
			t.Errorf("%s: the entry decides: %t, want %t", line, answer.Entry, want)
		}
	}
}

// TestListedHosts sends packets from listed hosts, from listed networks, and from adjacent addresses. If enough hosts are listed, the entry itself
// looks them up.
func TestListedHosts(t *testing.T) {
	t.Parallel()
	r, _ := subject.Seeded(t)
	for _, l := range []struct{ hosts, networks int }{{1, 0}, {9, 2}, {400, 1000}, {3000, 500}, {20, 400}} {
		t.Run(fmt.Sprintf("%d hosts, %d networks", l.hosts, l.networks), func(t *testing.T) {
			var policy, lines strings.Builder
			policy.WriteString("default: drop\nrules:\n")
			var listed []uint32
			rule := func(n int, source string) {
				fmt.Fprintf(&policy, "  - {from: %s, proto: udp, port: %d, then: pass}\n", source, n%100)
			}
			for n := range l.hosts {
				a := r.Uint32()>>4 | 0x20000000
				listed = append(listed, a)
				rule(n, subject.AddrOf(a).String())
			}
			for n := range l.networks {
				p := netip.PrefixFrom(subject.AddrOf(r.Uint32()>>4|0x20000000), 23+r.IntN(8)).Masked()
				first := p.Addr().As4()
				listed = append(listed, binary.BigEndian.Uint32(first[:]))
				rule(n, p.String())
			}
			for range 3000 {
				i := r.IntN(len(listed))
				a, port := listed[i]^uint32(r.IntN(2)<<r.IntN(28)), i%100
				if i >= l.hosts {
					port = (i - l.hosts) % 100
				}
				fmt.Fprintf(&lines, "udp %s:7 > 10.0.0.1:%d\n", subject.AddrOf(a), port+r.IntN(2))
			}
			subject.Lower(t, policy.String()).Agree(t, subject.FramesOf(t, lines.String()))
		})
	}
}
