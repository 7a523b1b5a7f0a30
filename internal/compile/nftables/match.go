// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// ruleLine has the tests of one line of a chain.
type ruleLine struct {
	text  string
	own   bool       // nft itself adds a test of the family, because text tests a header that exists only in one family
	proto []ir.Range // the protocols that can match
}

// A term is one condition of a line, as a list of alternatives. An empty list never holds.
type term []ruleLine

func way(text string) term { return term{{text: text}} }

func ownWay(format string, args ...any) term {
	return term{{text: fmt.Sprintf(format, args...), own: true}}
}

var familyKeys = [...]string{packet.FamilyIPv4: "ip", packet.FamilyIPv6: "ip6"}

// chainInput describes the packets that reach a chain.
type chainInput struct {
	fragments fragmentSet
	ingress   bool   // at ingress, the kernel drops packets whose protocol it cannot find (include/net/netfilter/nf_tables_ipv6.h)
	hops      uint32 // how often packets have been forwarded; the kernel decrements the TTL before the forward hook
	outside   term   // the test of the device that each line needs; nil: only packets of the policy's devices reach the lines

	// protos are the only protocols that the packets can have. nil means that they can have any.
	protos []ir.Range

	// direction is set for packets whose destination NAT has translated. It is their direction in the connection: "original" or "reply". The chain
	// then reads the original destination from conntrack. If direction is "", the destination is read from the packet.
	direction string
}

// unread reports whether the fragments in of include later fragments whose protocol `meta l4proto` may fail to read.
func (p chainInput) unread(of fragmentSet) bool {
	return !p.ingress && ir.Match{Values: of}.Has(packet.FragmentLater)
}

// forwarded returns p for packets that have been forwarded one more time.
func (p chainInput) forwarded() chainInput {
	p.hops++
	return p
}

// known simplifies a match by properties that the destinations of all packets have. The destination of forwarded packets is not an address of the
// host. The original destination of translated packets was such an address. decided reports whether the match holds for all packets.
func (p chainInput) known(pl *plan.Plan, side int, m ir.AddrMatch) (left ir.AddrMatch, decided bool) {
	switch {
	case side != match.DstSide || p.hops == 0 && p.direction == "":
		return m, false
	case p.direction != "":
		return match.Here(pl.Program.Sets, m)
	}
	return match.Elsewhere(pl.Program.Sets, m)
}

// knowsProto reports whether all packets have one of the given protocols.
func (p chainInput) knowsProto(protos []ir.Range) bool {
	return p.protos != nil && len(plan.ProtosWithout(p.protos, protos)) == 0
}

// address returns the key for the packet's original source (side 0) or destination (side 1).
func (p chainInput) address(side int, family uint32) string {
	key := familyKeys[family] + [...]string{" saddr", " daddr"}[side]
	if side == match.DstSide && p.direction != "" {
		return "ct " + p.direction + " " + key
	}
	return key
}

// lines returns lines that together match the same packets as a rule.
func (n *generator) lines(r *ir.Rule, p chainInput) (lines []ruleLine) {
	var both [2][]ruleLine
	families := ir.Match{Values: match.Values(r, packet.Family)}
	for family := range both {
		if families.Has(uint32(family)) {
			both[family] = n.familyLines(r, uint32(family), p)
		}
	}
	for _, l := range both[packet.FamilyIPv4] {
		i := slices.IndexFunc(both[packet.FamilyIPv6], func(o ruleLine) bool { return !l.own && !o.own && l.text == o.text })
		if i >= 0 {
			both[packet.FamilyIPv6] = slices.Delete(both[packet.FamilyIPv6], i, i+1)
			lines = append(lines, l)
			continue
		}
		lines = append(lines, l.explicit("ipv4"))
	}
	for _, l := range both[packet.FamilyIPv6] {
		lines = append(lines, l.explicit("ipv6"))
	}
	return lines
}

// explicit appends a test of the family, unless nft itself adds one. If the test came before `meta l4proto icmp`, nft 1.0.6 would omit it from its
// listing.
func (l ruleLine) explicit(family string) ruleLine {
	if !l.own {
		l.text = strings.TrimPrefix(l.text+" meta nfproto "+family, " ")
	}
	return l
}

// familyLines returns the lines of a rule for one family. They combine each alternative of the addresses with each alternative of protocol and
// header. The test for the host's own addresses comes late, because it searches the routing table. The test of the device comes last.
func (n *generator) familyLines(r *ir.Rule, family uint32, p chainInput) (lines []ruleLine) {
	var before, behind, local []term
	for side, matches := range match.Sides(r) {
		for _, m := range matches {
			m, decided := p.known(n.plan, side, m)
			if decided {
				continue
			}
			term := n.sets.term(m, p.address(side, family), r.Name, family)
			if match.HasLocal(n.plan.Program.Sets, m) {
				local = append(local, term)
			} else {
				before = append(before, term)
			}
		}
	}
	for _, m := range r.Match {
		if t, ok := fieldTerm(m, family, p.hops); ok {
			behind = append(behind, t)
		}
	}
	if r.Until != 0 {
		behind = append(behind, way(untilTest(r.Until)))
	}
	if p.outside != nil {
		local = append(local, p.outside)
	}
	l4 := l4Lines(r, family, p.fragments)
	answers := r.Verdict == ir.Reject && !match.Limited(r) // with limits, the chain of the limits answers
	if answers {                                           // a line that answers must name its protocol, because nft would add it to its listing
		p.protos = nil
	}
	if answers || p.direction != "" && match.Tests(r, packet.DPort) { // nft accepts the port from conntrack for one protocol only
		l4 = apartTCP(l4)
	}
	for _, l := range l4 {
		for _, w := range product(slices.Concat(before, l.terms(family, p), behind, local)) {
			w.proto = l.proto
			lines = append(lines, w)
		}
	}
	return lines
}

// untilTest returns the test that the time is before until, by the wall clock. It has the form of nft's listing with TZ=UTC.
func untilTest(until int64) string {
	return fmt.Sprintf("meta time < %q", time.Unix(0, until).UTC().Format(time.DateTime))
}

// product returns all combinations that contain one alternative of each term.
func product(terms []term) term {
	out := term{{}}
	for _, t := range terms {
		var next term
		for _, have := range out {
			for _, w := range t {
				next = append(next, ruleLine{text: strings.Trim(have.text+" "+w.text, " "), own: have.own || w.own})
			}
		}
		out = next
	}
	return out
}

// term returns the condition that an address of a family is in one of the sets of m. If m is negated, it returns the condition that the address is in
// none of them.
func (s *setTable) term(m ir.AddrMatch, key, rule string, family uint32) term {
	var ways term
	for _, set := range m.Sets {
		ways = append(ways, s.tests(set, key, rule, family, m.Not)...)
	}
	if !m.Not {
		return ways
	}
	one := make([]term, len(ways)) // all of these tests must hold
	for i := range ways {
		one[i] = term{ways[i]}
		if ways[i].text == never {
			return nil
		}
	}
	return product(one)
}

// never is the text of a test that no packet can match.
const never = "never"

// tests returns alternatives. At least one of them holds for an address in the set. If not is set, it returns tests that all hold for an address
// outside of the set.
func (s *setTable) tests(set int, key, rule string, family uint32, not bool) term {
	operator := ""
	if not {
		operator = "!= "
	}
	if match.IsLocal(&s.program.Sets[set]) {
		return way(fmt.Sprintf("fib %s type %slocal", strings.TrimPrefix(key, familyKeys[family]+" "), operator))
	}
	key += " " + operator
	if s.program.Sets[set].Dynamic != nil || s.program.Sets[set].Live {
		return s.lookups(set, key, rule, family)
	}
	held := s.content(set)[family]
	content := held.ranges
	switch {
	case len(content) == 0:
		return nil
	case len(content) == 1 && isWhole(content[0]) && not:
		return way(never)
	case len(content) == 1 && isWhole(content[0]):
		return way("")
	case s.program.Sets[set].Name == "" && len(content) <= plan.Inline:
		var words []string
		for _, r := range held.parts[0] {
			words = append(words, string(appendRange(nil, r)))
		}
		return ownWay("%s%s", key, listText(words))
	}
	return s.lookups(set, key, rule, family)
}

// lookups returns tests of the sets of the table that together hold one set of the policy.
func (s *setTable) lookups(set int, key, rule string, family uint32) (ways term) {
	for _, name := range s.use(set, rule).of(family) {
		if name != "" {
			ways = append(ways, ownWay("%s@%s", key, name)...)
		}
	}
	return ways
}

// isWhole reports whether a range contains all addresses of its family.
func isWhole(r netipx.IPRange) bool {
	return r == netipx.RangeOfPrefix(netip.PrefixFrom(r.From(), 0))
}
