// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/policy"
)

// Route is a flow specification with its action.
type Route struct {
	Flow   Flow
	Action Action
}

// Translated is a route with the rules that implement it.
type Translated struct {
	Route
	Rules   []*policy.Rule // none for a route that lets its packets pass
	Refused error          // why there is no rule for a route that drops packets
}

// maxBoxes is the largest number of rules of a route.
const maxBoxes = 8

// Segment translates routes to rules, in the order of RFC 8955, 5.1. The rules together drop the packets that the routes would drop if the first
// matching route decided. The policy decides about all other packets. No rule drops packets that a host needs (see essential), nor packets from the
// sources in except. A route that limits packets is refused, because temporary rules have no limits; its packets pass. Of equal flow specifications,
// the first applies.
func Segment(routes []Route, except []netip.Prefix) []Translated {
	sorted := slices.Clone(routes)
	slices.SortStableFunc(sorted, func(a, b Route) int {
		if a.Flow.IPv6 != b.Flow.IPv6 {
			return map[bool]int{false: -1, true: 1}[a.Flow.IPv6]
		}
		return Compare(a.Flow, b.Flow)
	})
	sorted = slices.CompactFunc(sorted, func(a, b Route) bool { return a.Flow.IPv6 == b.Flow.IPv6 && Compare(a.Flow, b.Flow) == 0 })
	var out []Translated
	passed := map[bool][]box{false: essential(false), true: essential(true)} // by family: packets that earlier routes do not drop
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

// essential returns the packets that a host needs: neighbor discovery, multicast listener queries and reports, ICMP errors, and answers of DHCP
// servers. RFC 4890 and RFC 2979 list the ICMP messages that a firewall must not drop.
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

// message returns the values of packet.ICMP for a range of ICMPv6 types.
func message(first, last uint32) ranges.Range {
	return ranges.Span(packet.ICMPv6|first<<8, packet.ICMPv6|last<<8|255)
}

// Name returns the name of a flow specification's rule. The name never changes, so the rule keeps its counters.
func (f Flow) Name() string {
	family := map[bool]string{false: "4", true: "6"}[f.IPv6]
	sum := sha256.Sum256(append([]byte(family), f.body()...))
	return "flowspec-" + hex.EncodeToString(sum[:5])
}

// rules returns the rules of a route that drops: its boxes without the packets that earlier routes let pass.
func rules(f Flow, boxes, passed []box, except []netip.Prefix) (list []*policy.Rule, err error) {
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
			r := b.rule(name, f.IPv6, except)
			if len(r.Line()) > maxLine {
				return nil, errors.New("comes to a rule that is too long: ask for fewer values")
			}
			list = append(list, r)
		}
		if len(list) > maxBoxes {
			return nil, fmt.Errorf("overlaps routes before it that let packets pass: that comes to more than %d rules", maxBoxes)
		}
	}
	return list, nil
}

// maxWork is the largest number of ranges that are compared for a route. The daemon translates all routes again each second, and a router may send
// many overlapping routes.
const maxWork = 1 << 13

// work returns the number of ranges that minus compares.
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

// maxLine is the largest length of a rule, in bytes.
const maxLine = 8192
