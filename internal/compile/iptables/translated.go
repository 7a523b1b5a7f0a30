// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
)

// asked has the options of the conntrack match for the original destination of packets in one direction of a connection. translation is the kind of
// NAT that changes that destination.
type asked struct{ direction, translation, address, port string }

var directions = []asked{
	{"ORIGINAL", "DNAT", "--ctorigdst ", "--ctorigdstport "},
	{"REPLY", "SNAT", "--ctrepldst ", "--ctrepldstport "},
}

// translated adds lines at the start of a filter chain that send packets with a translated destination to chains of their own, as in nftables. RETURN
// in these chains returns a packet to the caller of the first chain.
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

// askedAddress returns a condition on the original destination of a packet, which was an address of the host. If a set is filled at run time or has
// many prefixes, the translated destination is tested instead. A note tells the user so.
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

// unless returns the condition that at least one of the tests holds or, with not, that none does.
func unless(not bool, tests []lineTests) condition {
	if not {
		return condition{any: []lineTests{{}}, not: tests}
	}
	return condition{any: tests}
}

// askedSet returns a list of tests. At least one of them holds if the original destination is in a set.
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

// askedPorts returns the lines for original destination ports.
func (f *familyBuilder) askedPorts(values []ir.Range) (lines []lineTests) {
	for _, r := range values {
		lines = append(lines, f.askedTest(f.asked.port+rangeText(r, ":")))
	}
	return lines
}

// askedTest returns a test of the conntrack match. Translated packets always have an L4 header.
func (f *familyBuilder) askedTest(test string) lineTests {
	return lineTests{whole: true, match: []string{"-m conntrack " + test}}
}

// translatedNotes adds notes about rules of the filter stage that test a destination in a way that the conntrack match does not support.
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

// plainDestination reports whether a rule has a set or a limit of destinations for which the packet's translated destination is used.
func (b *builder) plainDestination(r *ir.Rule) bool {
	unknown := func(set int) bool {
		return !match.IsLocal(&b.pl.Program.Sets[set]) && !plan.KnowsAsked(&b.pl.Program.Sets[set])
	}
	return r.Connections != nil && r.Connections.Dst != nil ||
		slices.ContainsFunc(r.Over, func(limit int) bool { return b.pl.Program.Limits[limit].Dst != nil }) ||
		slices.ContainsFunc(r.Dst, func(m ir.AddrMatch) bool { return slices.ContainsFunc(m.Sets, unknown) })
}
