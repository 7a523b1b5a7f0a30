// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sort"
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// rounds returns how often a random test is repeated, and the seed of the first round.
func rounds(t *testing.T, short int) (int, uint64) {
	if os.Getenv("FLOODWALL_LONG") == "" {
		return short, 1
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return 100 * short, seed
}

// lowered returns a compiled policy that contains only the rules. The text of the rules must have the same meaning as the rules themselves.
func lowered(t *testing.T, rules []*policy.Rule) *ir.Program {
	t.Helper()
	var values, lines policy.Policy
	for _, r := range rules {
		read, err := policy.ParseRule(r.Line())
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Line())
		}
		values.Rules, lines.Rules = append(values.Rules, *r), append(lines.Rules, *read)
	}
	p, _, err := compile.Lower(&values)
	if err != nil {
		t.Fatal(err)
	}
	if read, _, err := compile.Lower(&lines); err != nil || read.String() != p.String() {
		t.Fatalf("%v\n%s\nas lines:\n%s", err, p, read)
	}
	p.Checks = 0
	return p
}

// TestSegmentMeans compares the rules of random routes with RFC 8955, where the first route that matches in the order of section 5.1 decides.
func TestSegmentMeans(t *testing.T) {
	t.Parallel()
	n, seed := rounds(t, 120)
	d := drawn{rand.New(rand.NewPCG(seed, 1)), false}
	actions := []Action{{}, {Drop: true}, {Drop: true}, {Drop: true}, {Bits: 1_000_000}, {Packets: 100}, {Bits: 10_000_000, Packets: 3}}
	dropped, passed, refused := 0, 0, 0
	for range n {
		routes, bodies := map[bool][]Route{}, map[bool][][]byte{}
		action := map[string]Action{}
		var all []Route
		for range 1 + d.IntN(7) {
			d.ipv6 = d.IntN(2) == 0
			f, body := d.flow()
			if _, twice := action[string(body)]; twice {
				continue
			}
			r := Route{f, pick(d, actions...)}
			action[string(body)] = r.Action
			all, routes[d.ipv6], bodies[d.ipv6] = append(all, r), append(routes[d.ipv6], r), append(bodies[d.ipv6], body)
		}
		var rules []*policy.Rule
		whole := true
		for _, tr := range Segment(all, nil) {
			rules = append(rules, tr.Rules...)
			if _, err := tr.Flow.boxes(); err != nil || tr.Refused != nil && tr.Action.Drop {
				whole = false
				refused++
			}
		}
		p := lowered(t, rules)
		for _, ipv6 := range []bool{false, true} {
			b := bodies[ipv6]
			sort.SliceStable(b, func(i, j int) bool { first, _ := before(b[i], b[j], ipv6); return first })
		}
		for range 60 {
			frame, pkt := d.frame()
			gram, ok := datagramOf(frame)
			if !ok || pkt.Kind != packet.IP || unreadable(&pkt) {
				continue
			}
			want := ir.Pass
			for _, body := range bodies[gram.ipv6] {
				if matches(body, gram.ipv6, &gram) {
					if action[string(body)].Drop && !isEssential(&gram) {
						want = ir.Drop
					}
					break
				}
			}
			got, reason := p.Eval(&pkt, ir.World{})
			if got == ir.Drop {
				dropped++
			} else {
				passed++
			}
			if got != want && (whole || got == ir.Drop) {
				for _, r := range all {
					t.Logf("%v: %s", r.Flow, r.Action)
				}
				t.Fatalf("%x %v %+v: the rules %s it by %s, RFC 8955 %ss\n%s", frame, pkt.Value, gram, got, p.ReasonName(reason), want, p)
			}
		}
	}
	t.Logf("%d dropped, %d passed, %d routes refused", dropped, passed, refused)
	if dropped < n || passed < n || refused > n/2 {
		t.Error("the packets do not meet the routes")
	}
}

// TestOrder compares the function Compare with the procedure of RFC 8955.
func TestOrder(t *testing.T) {
	t.Parallel()
	n, seed := rounds(t, 1000)
	d := drawn{rand.New(rand.NewPCG(seed, 2)), false}
	for range n {
		d.ipv6 = d.IntN(2) == 0
		a, bytesA := d.flow()
		b, bytesB := d.flow()
		first, equal := before(bytesA, bytesB, d.ipv6)
		if got := Compare(a, b); (got < 0) != first || (got == 0) != equal || Compare(b, a) != -got {
			t.Fatalf("%v and %v: %d, the RFC says first %t, equal %t", a, b, got, first, equal)
		}
	}
}

// TestExcept uses sources whose packets no rule may drop, of both families and of a set.
func TestExcept(t *testing.T) {
	f, _, err := Decode([]byte{5, 1, 24, 192, 0, 2}, false)
	if err != nil {
		t.Fatal(err)
	}
	except := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	segment := Segment([]Route{{f, Action{Drop: true}}}, except)
	p := lowered(t, segment[0].Rules)
	for line, want := range map[string]ir.Verdict{
		"udp 203.0.113.9:1 > 192.0.2.1:2":        ir.Pass,
		"udp 198.51.100.9:1 > 192.0.2.1:2":       ir.Drop,
		"udp 198.51.100.9:1 > 192.0.3.1:2":       ir.Pass,
		"udp [2001:db9::1]:1 > [2001:db9::2]:53": ir.Pass,
	} {
		spec, err := packet.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		pkt := spec.Packet()
		if got, _ := p.Eval(&pkt, ir.World{}); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// unreadable reports whether a packet fails one of the checks on which all rules depend.
func unreadable(pkt *packet.Packet) bool {
	return pkt.Failed.Has(packet.ExtHeaders) || pkt.Failed.Has(packet.Truncated) || pkt.Failed.Has(packet.TinyFragment)
}

// isEssential reports whether a packet is one that no route may drop.
func isEssential(d *datagram) bool {
	switch {
	case len(d.l4) < 4:
		return false
	case d.proto == 17:
		return binary.BigEndian.Uint16(d.l4[2:]) == map[bool]uint16{false: 68, true: 546}[d.ipv6]
	case d.ipv6:
		return d.proto == 58 && slices.Contains([]byte{1, 2, 3, 4, 130, 131, 132, 133, 134, 135, 136, 137, 143}, d.l4[0])
	}
	return d.proto == 1 && slices.Contains([]byte{3, 11, 12}, d.l4[0])
}

// crossing returns the routes of a hostile router: each dropping route overlaps each passing route in all values but the last. If usual is true, each
// route has only a port.
func crossing(usual bool) (all []Route) {
	for i := range 512 {
		drops := i >= 256
		c := []Component{{Type: Destination, Prefix: netip.MustParsePrefix("192.0.2.1/32")}}
		if usual {
			kind := map[bool]Type{false: DestinationPort, true: SourcePort}[drops]
			c = append(c, Component{Type: kind, Terms: []byte{opEqual | opEnd, byte(i)}})
		} else {
			ports := []byte{opEqual, byte(i)}
			for n := 1; n < 60; n++ {
				ports = binary.BigEndian.AppendUint16(append(ports, opEqual|1<<4), uint16(256+301*n))
			}
			ports[len(ports)-3] |= opEnd
			last := map[bool]byte{false: 1, true: 2}[drops]
			c = append(c, Component{Type: Port, Terms: ports}, Component{Type: DSCP, Terms: []byte{opEqual | opEnd, last}})
		}
		all = append(all, Route{Flow{Components: c}, Action{Drop: drops}})
	}
	return all
}

// TestSegmentBounded uses a hostile router's routes, each of which overlaps all others. Most routes must be refused before they cost much CPU time.
// The same number of usual routes must not be refused.
func TestSegmentBounded(t *testing.T) {
	const most = 1 << 21 // allocations
	for _, usual := range []bool{true, false} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		list := Segment(crossing(usual), nil)
		runtime.ReadMemStats(&after)
		if n := after.Mallocs - before.Mallocs; n > most {
			t.Errorf("usual %t: %d allocations, want at most %d", usual, n, most)
		}
		refused := 0
		for _, tr := range list {
			if tr.Refused != nil {
				refused++
			}
		}
		if usual && refused > 0 || refused > 256 {
			t.Errorf("usual %t: %d routes are refused", usual, refused)
		}
	}
}
