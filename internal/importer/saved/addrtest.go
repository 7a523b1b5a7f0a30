// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"slices"

	"go4.org/netipx"
)

// AddrTest is a test of one of a packet's addresses. The address must be in In and not in Out. A nil set tests nothing.
type AddrTest struct{ In, Out *AddrSet }

// and returns a test that holds if both tests hold. ok is false when the policy cannot express this test, because a key takes only one list of sets.
func (t AddrTest) and(u AddrTest) (both AddrTest, ok bool) {
	both.Out = t.Out
	switch {
	case t.Out == nil:
		both.Out = u.Out
	case u.Out != nil:
		both.Out = t.Out.Or(u.Out)
	}
	switch {
	case t.In == nil:
		both.In = u.In
	case u.In == nil || t.In.equal(u.In):
		both.In = t.In
	case t.In.Plain() && u.In.Plain():
		both.In = &AddrSet{Ranges: Common(t.In.Ranges, u.In.Ranges)}
	case t.In.Plain():
		both = both.within(u.In, t.In.Ranges)
	case u.In.Plain():
		both = both.within(t.In, u.In.Ranges)
	case t.In.covers(u.In):
		both.In = u.In
	case u.In.covers(t.In):
		both.In = t.In
	default:
		return t, false
	}
	return both.tidy(), true
}

// within adds to t the test that the address is in a and in ranges. It expresses ranges by excluding all other addresses.
func (t AddrTest) within(a *AddrSet, ranges []netipx.IPRange) AddrTest {
	if len(a.Sets) == 0 && slices.Equal(ranges, Common(ranges, HereBound)) { // no host has such an address
		return AddrTest{In: &AddrSet{Ranges: Common(a.Ranges, ranges)}, Out: t.Out}
	}
	others := &AddrSet{Ranges: outside(ranges)}
	if t.Out != nil {
		others = others.Or(t.Out)
	}
	return AddrTest{In: a, Out: others}
}

// tidy removes from In the addresses that are in Out.
func (t AddrTest) tidy() AddrTest {
	if t.In == nil || t.Out == nil {
		return t
	}
	t.In = t.In.minus(t.Out)
	if t.In.Plain() && t.Out.Plain() {
		t.Out = nil
	}
	return t
}

// of returns the part of t that matters for addresses of one family. possible is false when no address can pass.
func (t AddrTest) of(f Family) (u AddrTest, possible bool) {
	if t.In != nil {
		if u.In = t.In.of(f); u.In.empty() {
			return u, false
		}
	}
	if t.Out != nil {
		if u.Out = t.Out.of(f); u.Out.empty() {
			u.Out = nil
		}
	}
	if u.In != nil && len(u.In.Ranges) == 1 && len(u.In.Sets) == 0 && whole(u.In.Ranges[0]) {
		u.In = nil
	}
	return u, u.Out == nil || len(u.Out.Ranges) == 0 || !slices.ContainsFunc(u.Out.Ranges, whole)
}

// whole reports whether r has all addresses of its family.
func whole(r netipx.IPRange) bool {
	p, ok := r.Prefix()
	return ok && p.Bits() == 0
}

// of returns the part of a that can have addresses of one family.
func (a *AddrSet) of(f Family) *AddrSet {
	u := &AddrSet{Local: a.Local}
	for _, r := range a.Ranges {
		if familyOf(r.From()) == f {
			u.Ranges = append(u.Ranges, r)
		}
	}
	for _, s := range a.Sets {
		if s.Family&f != 0 {
			u.Sets = append(u.Sets, s)
		}
	}
	return u
}

// Or joins t and u. t is for packets of one family, and u for packets of the other family. Both must have the same form.
func (t AddrTest) Or(u AddrTest) AddrTest {
	if t.In != nil {
		t.In = t.In.Or(u.In)
	}
	if t.Out != nil {
		t.Out = t.Out.Or(u.Out)
	}
	return t
}
