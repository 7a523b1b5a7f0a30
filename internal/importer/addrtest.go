package importer

import (
	"slices"

	"go4.org/netipx"
)

// addrTest is a test of one of a packet's addresses: it must be in `in`, and not in `out`. A nil set tests nothing.
type addrTest struct{ in, out *addrSet }

// and is a test for both; ok is false when the policy cannot say it, as it takes one list of sets for each key.
func (t addrTest) and(u addrTest) (both addrTest, ok bool) {
	both.out = t.out
	switch {
	case t.out == nil:
		both.out = u.out
	case u.out != nil:
		both.out = t.out.or(u.out)
	}
	switch {
	case t.in == nil:
		both.in = u.in
	case u.in == nil || t.in.equal(u.in):
		both.in = t.in
	case t.in.plain() && u.in.plain():
		both.in = &addrSet{ranges: common(t.in.ranges, u.in.ranges)}
	case t.in.plain():
		both = both.within(u.in, t.in.ranges)
	case u.in.plain():
		both = both.within(t.in, u.in.ranges)
	case t.in.covers(u.in):
		both.in = u.in
	case u.in.covers(t.in):
		both.in = t.in
	default:
		return t, false
	}
	return both.tidy(), true
}

// within adds to t that the address is in a and in ranges, the latter by excluding all others.
func (t addrTest) within(a *addrSet, ranges []netipx.IPRange) addrTest {
	if len(a.sets) == 0 && slices.Equal(ranges, common(ranges, hereBound)) { // no host has such an address
		return addrTest{in: &addrSet{ranges: common(a.ranges, ranges)}, out: t.out}
	}
	others := &addrSet{ranges: outside(ranges)}
	if t.out != nil {
		others = others.or(t.out)
	}
	return addrTest{in: a, out: others}
}

// tidy takes out of `in` what is in out.
func (t addrTest) tidy() addrTest {
	if t.in == nil || t.out == nil {
		return t
	}
	t.in = t.in.minus(t.out)
	if t.in.plain() && t.out.plain() {
		t.out = nil
	}
	return t
}

// of is what t asks of addresses of one family; possible is false when none can pass.
func (t addrTest) of(f family) (u addrTest, possible bool) {
	if t.in != nil {
		if u.in = t.in.of(f); u.in.empty() {
			return u, false
		}
	}
	if t.out != nil {
		if u.out = t.out.of(f); u.out.empty() {
			u.out = nil
		}
	}
	if u.in != nil && len(u.in.ranges) == 1 && len(u.in.sets) == 0 && whole(u.in.ranges[0]) {
		u.in = nil
	}
	return u, u.out == nil || len(u.out.ranges) == 0 || !slices.ContainsFunc(u.out.ranges, whole)
}

// whole reports whether r is all addresses of its family.
func whole(r netipx.IPRange) bool {
	p, ok := r.Prefix()
	return ok && p.Bits() == 0
}

// of is the part of a that can hold addresses of one family.
func (a *addrSet) of(f family) *addrSet {
	u := &addrSet{local: a.local}
	for _, r := range a.ranges {
		if familyOf(r.From()) == f {
			u.ranges = append(u.ranges, r)
		}
	}
	for _, s := range a.sets {
		if s.family&f != 0 {
			u.sets = append(u.sets, s)
		}
	}
	return u
}
