package iptables

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
)

// asked has the words of conntrack for the destination that packets of a direction came in with, and the translation that changes it.
type asked struct{ direction, translation, address, port string }

var directions = []asked{
	{"ORIGINAL", "DNAT", "--ctorigdst ", "--ctorigdstport "},
	{"REPLY", "SNAT", "--ctrepldst ", "--ctrepldstport "},
}

// translated begins a chain of the filter stage with lines for packets whose destination NAT has translated: chains of their
// own have the rules for them, as in nftables. A packet leaves these by RETURN to where the first chain was called.
func (f *familyBuilder) translated(t *table) {
	if !f.pl.SeesTranslated() {
		return
	}
	main := t.at
	for i := range directions {
		f.asked = &directions[i]
		t.at = t.chain(f.chainName("nat-" + strings.ToLower(f.asked.direction)))
		main.add("-m conntrack --ctstate %s --ctdir %s -g %s", f.asked.translation, f.asked.direction, t.at.name)
		f.stage(t, plan.StageFilter)
	}
	f.asked, t.at, t.rests = nil, main, 0
}

// askedAddress is a condition on the destination that a packet came in with. It was the host's own. A set that is filled at run time,
// and one of many prefixes, is asked for the destination that the packet has now; a note tells.
func (f *familyBuilder) askedAddress(m ir.AddrMatch) condition {
	m, decided := match.Here(f.pl.Program.Sets, m)
	if decided {
		return always()
	}
	var c condition
	for _, set := range m.Sets {
		if f.reach(set) == reachAll {
			return unless(m.Not, []lineTests{{}})
		}
		c.any = append(c.any, f.askedSet(set)...)
	}
	return unless(m.Not, c.any)
}

// unless is the condition that one of some tests holds or, with not, that none does.
func unless(not bool, tests []lineTests) condition {
	if not {
		return condition{any: []lineTests{{}}, not: tests}
	}
	return condition{any: tests}
}

// askedSet are the tests of which one holds when the destination is in a set.
func (f *familyBuilder) askedSet(set int) (list []lineTests) {
	s := f.sets[set].Fixed()
	switch {
	case f.reach(set) == reachNone:
		return nil
	case !plan.KnowsAsked(&f.sets[set]):
		return []lineTests{f.inSet(match.DstSide, set, false)}
	}
	f.prefixes(s, func(p netip.Prefix) bool {
		list = append(list, f.askedTest(f.asked.address+p.String()))
		return true
	})
	return list
}

// askedPorts are the lines for ports that packets came in with.
func (f *familyBuilder) askedPorts(values []ir.Range) (lines []lineTests) {
	for _, r := range values {
		lines = append(lines, f.askedTest(f.asked.port+rangeText(r, ":")))
	}
	return lines
}

// askedTest is a test of conntrack's knowledge. What conntrack has translated has a header.
func (f *familyBuilder) askedTest(test string) lineTests {
	return lineTests{whole: true, match: []string{"-m conntrack " + test}}
}

// translatedNotes names the rules at filter that ask for a destination which conntrack cannot be asked for.
func (b *builder) translatedNotes(note func(text string)) {
	if !b.pl.SeesTranslated() {
		return
	}
	for _, step := range b.pl.At(plan.StageFilter) {
		r := &b.pl.Program.Rules[step.Rule]
		if b.plainDestination(r) {
			note("rule " + r.Name + ": where NAT translates destinations, its set or limit by destination means the translated address, " +
				"as iptables cannot look up the one that was asked for; nftables can")
		}
	}
}

// plainDestination reports whether a rule has a set or a limit of destinations that is asked for the one in the packet.
func (b *builder) plainDestination(r *ir.Rule) bool {
	unknown := func(set int) bool {
		return !match.IsLocal(&b.pl.Program.Sets[set]) && !plan.KnowsAsked(&b.pl.Program.Sets[set])
	}
	return r.Connections != nil && r.Connections.Dst != nil ||
		slices.ContainsFunc(r.Over, func(limit int) bool { return b.pl.Program.Limits[limit].Dst != nil }) ||
		slices.ContainsFunc(r.Dst, func(m ir.AddrMatch) bool { return slices.ContainsFunc(m.Sets, unknown) })
}
