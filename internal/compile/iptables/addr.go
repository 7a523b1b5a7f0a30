// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// addresses returns the condition on the source and the destination of a rule.
func (f *familyBuilder) addresses(r *ir.Rule) condition {
	c := always()
	if r.Until != 0 { // --datestop is the last second in which the rule holds
		c = matching("-m time --datestop " + time.Unix(0, r.Until).Add(-time.Second).UTC().Format("2006-01-02T15:04:05"))
	}
	for side, matches := range match.Sides(r) {
		for _, m := range matches {
			switch {
			case side != match.DstSide:
			case f.asked != nil:
				c = c.and(f.askedAddress(m))
				continue
			case f.hops > 0:
				m, _ = match.Elsewhere(f.pl.Program.Sets, m) // without sets, a negated match holds for every address
			}
			if m.Not {
				c = c.and(f.inNone(side, m.Sets))
			} else {
				c = c.and(f.inAny(side, m.Sets))
			}
		}
	}
	return c
}

func (f *familyBuilder) inAny(side int, sets []int) (c condition) {
	for _, set := range sets {
		switch f.reach(set) {
		case reachAll:
			return always()
		case reachSome:
			c.any = append(c.any, f.inSet(side, set, false))
		}
	}
	return c
}

func (f *familyBuilder) inNone(side int, sets []int) condition {
	var a lineTests
	for _, set := range sets {
		switch f.reach(set) {
		case reachAll:
			return condition{}
		case reachSome:
			a = a.and(f.inSet(side, set, true))
		}
	}
	return all(a)
}

// reach is the part of a family's addresses that a set contains: none, some or all.
type reach uint8

const (
	reachNone reach = iota
	reachSome
	reachAll
)

func (f *familyBuilder) reach(set int) reach {
	s := f.sets[set].Fixed()
	switch {
	case s == nil:
		return reachSome
	case f.size(s) == 0:
		return reachNone
	case f.size(s) == 1 && f.first(s).Bits() == 0:
		return reachAll
	}
	return reachSome
}

// size returns the number of prefixes or ranges of this family in a set.
func (f *familyBuilder) size(s *addrs.Set) int {
	if f.family == packet.FamilyIPv4 {
		return len(s.V4())
	}
	return s.Size() - len(s.V4())
}

// prefixes yields the prefixes of a set in this family.
func (f *familyBuilder) prefixes(s *addrs.Set, yield func(netip.Prefix) bool) {
	for p := range s.Prefixes() {
		if p.Addr().Is4() == (f.family == packet.FamilyIPv4) && !yield(p) {
			return
		}
	}
}

// first returns the first prefix of a set in this family.
func (f *familyBuilder) first(s *addrs.Set) (first netip.Prefix) {
	f.prefixes(s, func(p netip.Prefix) bool { first = p; return false })
	return first
}

// inSet returns the test that an address is in a set or, with not, that it is outside. If the set is written in a rule and is a single prefix or
// range, it becomes a test of its own. All other sets become ipsets.
func (f *familyBuilder) inSet(side int, set int, not bool) lineTests {
	s := &f.sets[set]
	if match.IsLocal(s) {
		return localAddr(side, not)
	}
	if s.Name == "" && s.Static != nil && f.size(s.Static) == 1 {
		if p := f.first(s.Static); f.family == packet.FamilyIPv6 || isPrefix(s.Static.V4()[0], p) {
			return lineTests{addrs: []addrTest{{side, not, p}}}
		}
		r := s.Static.V4()[0].IPRange()
		return lineTests{match: []string{rangeMatch(side, not, r.From(), r.To())}}
	}
	return lineTests{match: []string{"-m set " + negated(not) + "--match-set " + f.ipsetName(set) + [2]string{" src", " dst"}[side]}}
}

// localAddr returns the test that an address is the host's own or, with not, that it is not.
func localAddr(side int, not bool) lineTests {
	return lineTests{match: []string{"-m addrtype " + negated(not) + [2]string{"--src-type", "--dst-type"}[side] + " LOCAL"}}
}

// isPrefix reports whether a range, which begins with a prefix, equals that prefix.
func isPrefix(r addrs.Range, p netip.Prefix) bool {
	return uint64(r.Last)-uint64(r.First)+1 == 1<<(32-p.Bits())
}
