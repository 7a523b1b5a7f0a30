package flowspec

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/policy"
)

// rounds is how often a random test is repeated, and the seed with which it begins.
func rounds(t *testing.T, short int) (int, uint64) {
	if os.Getenv("FLOODWALL_LONG") == "" {
		return short, 1
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return 100 * short, seed
}

// lowered is a policy of rules alone, given in its language.
func lowered(t *testing.T, rules []Rule) *ir.Program {
	t.Helper()
	text := "devices: [eth0]\ndefault: pass\n"
	for i, r := range rules {
		if i == 0 {
			text += "rules:\n"
		}
		text += "  - " + r.Line + "\n"
	}
	read, err := policy.Parse("p", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p, _, err := compile.Lower(read)
	if err != nil {
		t.Fatal(err)
	}
	p.Checks = 0
	return p
}

// TestSegmentMeans compares the rules of random routes with RFC 8955: the routes are asked in the order of section 5.1 until one matches.
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
		var rules []Rule
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

// TestOrder compares Compare with the procedure of the RFC.
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

// TestExcept has sources from which no rule drops packets, of both families and of a set.
func TestExcept(t *testing.T) {
	f, _, err := Decode([]byte{5, 1, 24, 192, 0, 2}, false)
	if err != nil {
		t.Fatal(err)
	}
	except := []string{"203.0.113.0/24", "2001:db8::/32"}
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

// unreadable reports whether a packet is one of those that checks drop on which all rules rest.
func unreadable(pkt *packet.Packet) bool {
	return pkt.Failed.Has(packet.ExtHeaders) || pkt.Failed.Has(packet.Truncated) || pkt.Failed.Has(packet.TinyFragment)
}

// isEssential reports whether a packet is one that no route drops.
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
