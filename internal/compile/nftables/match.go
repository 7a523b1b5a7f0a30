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

// ruleLine is the tests of one line of a chain.
type ruleLine struct {
	text  string
	own   bool       // nft tests the family by itself, because a test in text is of a header that only one family has
	proto []ir.Range // the protocols that can match
}

// A term is one condition of a line, in the ways that together are all in which it can hold. None: it cannot.
type term []ruleLine

func way(text string) term { return term{{text: text}} }

func ownWay(format string, args ...any) term {
	return term{{text: fmt.Sprintf(format, args...), own: true}}
}

var familyKeys = [...]string{packet.FamilyIPv4: "ip", packet.FamilyIPv6: "ip6"}

// chainInput is what the lines of a chain depend on.
type chainInput struct {
	fragments fragmentSet
	ingress   bool   // the kernel drops there what it finds no protocol of (include/net/netfilter/nf_tables_ipv6.h)
	hops      uint32 // how often packets have been forwarded: the kernel counts the TTL down before the forward hook
	outside   term   // the test of the device that lines need; nil: packets of others do not come so far

	// protos are the protocols that packets are known to have; nil: they can have any.
	protos []ir.Range

	// direction is that of the packets in their connection, "original" or "reply", when their destination has been translated:
	// the chain then asks conntrack for the one that they came in with; "" when it is in the packet.
	direction string
}

// unread reports whether later fragments come, among some fragments of datagrams, whose protocol `meta l4proto` may have nothing of.
func (p chainInput) unread(of fragmentSet) bool {
	return !p.ingress && ir.Match{Values: of}.Has(packet.FragmentLater)
}

// forwarded is the same for packets that have been forwarded once.
func (p chainInput) forwarded() chainInput {
	p.hops++
	return p
}

// known takes from a match what is known of the destination of packets: it is not the host's own when they are forwarded,
// and was the host's own when it has been translated. decided reports whether the match holds for all of them then.
func (p chainInput) known(pl *plan.Plan, side int, m ir.AddrMatch) (left ir.AddrMatch, decided bool) {
	switch {
	case side != match.DstSide || p.hops == 0 && p.direction == "":
		return m, false
	case p.direction != "":
		return match.Here(pl.Program.Sets, m)
	}
	return match.Elsewhere(pl.Program.Sets, m)
}

// knowsProto reports whether all packets are known to have one of some protocols.
func (p chainInput) knowsProto(protos []ir.Range) bool {
	return p.protos != nil && len(plan.ProtosWithout(p.protos, protos)) == 0
}

// address is the key of an address, side 0 being the source, as the packet had it when it came in.
func (p chainInput) address(side int, family uint32) string {
	key := familyKeys[family] + [...]string{" saddr", " daddr"}[side]
	if side == match.DstSide && p.direction != "" {
		return "ct " + p.direction + " " + key
	}
	return key
}

// lines are the lines that match what a rule does.
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

// explicit adds the test of the family where nft does not. In front of `meta l4proto icmp` nft 1.0.6 would leave it out of
// what it lists.
func (l ruleLine) explicit(family string) ruleLine {
	if !l.own {
		l.text = strings.TrimPrefix(l.text+" meta nfproto "+family, " ")
	}
	return l
}

// familyLines are the lines of a rule for one family: each way of the addresses with each of protocol and header. Whether an
// address is the host's own is asked late, as the routing table has to be searched for it, and the device last.
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
	answers := r.Verdict == ir.Reject && !match.Limited(r) // else a chain of the limits does
	if answers {                                           // what answers names its protocol: nft would add it to what it lists
		p.protos = nil
	}
	if answers || p.direction != "" && match.Tests(r, packet.DPort) { // nft takes conntrack's port for one protocol alone
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

// untilTest holds until a time, as nft lists it with TZ=UTC: it compares the wall clock.
func untilTest(until int64) string {
	return fmt.Sprintf("meta time < %q", time.Unix(0, until).UTC().Format(time.DateTime))
}

// product are all combinations of one way of each term.
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

// term is the condition that an address of a family is in one of some sets, or in none.
func (s *setTable) term(m ir.AddrMatch, key, rule string, family uint32) term {
	var ways term
	for _, set := range m.Sets {
		ways = append(ways, s.tests(set, key, rule, family, m.Not)...)
	}
	if !m.Not {
		return ways
	}
	one := make([]term, len(ways)) // all must hold
	for i := range ways {
		one[i] = term{ways[i]}
		if ways[i].text == never {
			return nil
		}
	}
	return product(one)
}

// never stands for a test that no packet passes.
const never = "never"

// tests are the ways in which an address can be in a set or, with not, the tests that all hold when it is not.
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

// lookups are tests of the sets of the table that together are one of the policy.
func (s *setTable) lookups(set int, key, rule string, family uint32) (ways term) {
	for _, name := range s.use(set, rule).of(family) {
		if name != "" {
			ways = append(ways, ownWay("%s@%s", key, name)...)
		}
	}
	return ways
}

// isWhole reports whether a range is all addresses of its family.
func isWhole(r netipx.IPRange) bool {
	return r == netipx.RangeOfPrefix(netip.PrefixFrom(r.From(), 0))
}
