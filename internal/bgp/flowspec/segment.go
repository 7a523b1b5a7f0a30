package flowspec

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Route is a flow specification and what shall be done with its packets.
type Route struct {
	Flow   Flow
	Action Action
}

// Translated is a route, and the rules that do what it says.
type Translated struct {
	Route
	Rules   []Rule // none of a route that lets its packets pass
	Refused error  // why there is no rule, though the route asks for one
}

// Rule is a rule of the policy's language.
type Rule struct {
	Name string
	Line string // one line, as it stands under rules
}

// maxBoxes is how many rules a route may come to.
const maxBoxes = 8

// Segment makes rules of routes, in the order in which RFC 8955, 5.1, has them asked. The rules drop what the routes would drop, asked one after
// the other until one matches. All other packets go on to the policy. No rule drops packets of essential, nor from the sources except.
// A route that limits packets is refused, as temporary rules have no limits; it lets its packets pass. Of equal flow
// specifications the first holds.
func Segment(routes []Route, except []string) []Translated {
	sorted := slices.Clone(routes)
	slices.SortStableFunc(sorted, func(a, b Route) int {
		if a.Flow.IPv6 != b.Flow.IPv6 {
			return map[bool]int{false: -1, true: 1}[a.Flow.IPv6]
		}
		return Compare(a.Flow, b.Flow)
	})
	sorted = slices.CompactFunc(sorted, func(a, b Route) bool { return a.Flow.IPv6 == b.Flow.IPv6 && Compare(a.Flow, b.Flow) == 0 })
	var out []Translated
	passed := map[bool][]box{false: essential(false), true: essential(true)} // by family, what routes before do not drop
	for _, r := range sorted {
		t := Translated{Route: r}
		boxes, err := r.Flow.boxes()
		switch {
		case err != nil:
			boxes = []box{r.Flow.around()}
		case r.Action.Drop:
			t.Rules, err = rules(r.Flow, boxes, passed[r.Flow.IPv6], except)
		case r.Action != Action{}:
			err = fmt.Errorf("asks for a %s: only drops are supported", r.Action)
		}
		if !r.Action.Drop {
			passed[r.Flow.IPv6] = append(passed[r.Flow.IPv6], boxes...)
		}
		t.Refused = err
		out = append(out, t)
	}
	return out
}

// essential are packets that a host cannot do without: neighbor discovery, multicast listener queries and reports, ICMP errors, and what
// DHCP servers answer. RFC 4890 and RFC 2979 say which ICMP messages a firewall must not drop.
func essential(ipv6 bool) []box {
	var icmp, dhcp box
	port := uint32(68)
	icmp.fields[packet.ICMP] = []ranges.Range{ranges.Span(3<<8, 3<<8|255), ranges.Span(11<<8, 12<<8|255)}
	if ipv6 {
		port = 546
		icmp.fields[packet.ICMP] = ranges.Normalize([]ranges.Range{
			message(1, 4), message(130, 137), message(143, 143),
		})
	}
	dhcp.fields[packet.DPort] = ranges.Of(packet.PortUDP + port)
	return []box{icmp, dhcp}
}

// message are the values of packet.ICMP of types of ICMPv6.
func message(first, last uint32) ranges.Range {
	return ranges.Span(packet.ICMPv6|first<<8, packet.ICMPv6|last<<8|255)
}

// Name is a name for a rule that does what a flow specification says: the same one at all times, so that its counts go on.
func (f Flow) Name() string {
	family := map[bool]string{false: "4", true: "6"}[f.IPv6]
	sum := sha256.Sum256(append([]byte(family), f.body()...))
	return "flowspec-" + hex.EncodeToString(sum[:5])
}

// rules are the rules of a route that drops, for its boxes without what routes before it let pass.
func rules(f Flow, boxes, passed []box, except []string) (list []Rule, err error) {
	work := 0
	for i := range passed {
		var rest []box
		for _, b := range boxes {
			if work += b.work(&passed[i]); work > maxWork {
				return nil, errors.New("overlaps too many routes before it that let packets pass: ask for fewer values")
			}
			rest = append(rest, b.minus(&passed[i])...)
		}
		if boxes = rest; len(boxes) > 4*maxBoxes {
			break
		}
	}
	for _, b := range boxes {
		for _, b := range b.coherent(f.IPv6) {
			name := f.Name()
			if len(list) > 0 {
				name = fmt.Sprintf("%s-%d", name, len(list)+1)
			}
			line := b.line(name, f.IPv6, except)
			if len(line) > maxLine {
				return nil, errors.New("comes to a rule that is too long: ask for fewer values")
			}
			list = append(list, Rule{name, line})
		}
		if len(list) > maxBoxes {
			return nil, fmt.Errorf("overlaps routes before it that let packets pass: that comes to more than %d rules", maxBoxes)
		}
	}
	return list, nil
}

// maxWork is how many ranges are compared for a route: the daemon translates all routes again each second, and a router may send them so that
// each overlaps all others.
const maxWork = 1 << 13

// work is how many ranges minus compares.
func (b *box) work(a *box) (n int) {
	if _, meet := inner(b.dst, a.dst); !meet {
		return 0
	}
	if _, meet := inner(b.src, a.src); !meet {
		return 0
	}
	n = 1 + len(b.notDst) + len(b.notSrc)
	for f, values := range a.fields {
		if values != nil {
			n += len(values) + len(b.fields[f])
		}
	}
	return n
}

// maxLine is how long a rule may be, in bytes.
const maxLine = 8192
