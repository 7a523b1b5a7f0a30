// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"
	"strings"

	"go4.org/netipx"
)

// meets returns the Conds of a match, which holds if any of them holds. The match compares the expression left with
// the value right by op.
func (r *nftRuleReader) meets(left any, op string, right any) []Cond {
	if parts, ok := member(left, "concat").([]any); ok {
		return r.tuples(parts, op, right)
	}
	s := selectorOf(left)
	c := s.given
	switch {
	case s.unknown != "":
		c = c.WithUnknown(s.unknown)
	case s.status && right == "dnat" && (op == "in" || op == "=="):
		c.DNAT = true
	case s.status:
		c = c.WithUnknown("ct status")
	case s.routing && right == float64(0) && op == "==":
		c.Routed = true
	case s.routing:
		c = c.WithUnknown("rt type")
	case s.bytes != nil:
		return r.bytes(c, *s.bytes, op, right)
	case s.device:
		c = s.devices(c, op, right)
	case s.kinds:
		c = s.addrKind(c, op, right)
	case s.side != nil:
		c = r.address(c, s, op, right)
	default:
		c = r.number(c, s, op, right)
	}
	return []Cond{c}
}

func unknownValue(c Cond, op string, right any) Cond {
	return c.WithUnknown(Shorten(fmt.Sprintf("the comparison %s %s", op, compact(right))))
}

// devices reads the names of devices.
func (s selector) devices(c Cond, op string, right any) Cond {
	list, ok := listOf(right)
	if !ok {
		list = []any{right}
	}
	t := DeviceTest{Not: op == "!="}
	for _, v := range list {
		v, _ = element(v)
		name, ok := v.(string)
		if !ok || strings.HasPrefix(name, "@") || op != "==" && op != "!=" {
			return unknownValue(c, op, right)
		}
		t.Names = append(t.Names, name)
	}
	if s.leaves {
		return c.WithUnknown(leavesBy(t.Not, t.Names...))
	}
	c.Devices = append(c.Devices, t)
	return c
}

// addrKind reads a comparison of an address type, as fib determines it.
func (s selector) addrKind(c Cond, op string, right any) Cond {
	list, ok := listOf(right)
	if !ok {
		list = []any{right}
	}
	var names []string
	for _, v := range list {
		names = append(names, fmt.Sprint(v))
	}
	set, narrower, ok := AddrKinds(strings.Join(names, ","))
	if !ok || narrower && op != "==" || op != "==" && op != "!=" {
		return unknownValue(c, op, right)
	}
	t := AddrTest{In: set}
	if op == "!=" {
		t = t.Not()
	}
	c = s.side(c, t)
	if narrower {
		c = c.Narrowed(DirectedBroadcast)
	}
	return c
}

// address reads a comparison with addresses, or with a set of addresses.
func (r *nftRuleReader) address(c Cond, s selector, op string, right any) Cond {
	set, narrower, ok := r.addrs(right)
	if !ok || op != "==" && op != "!=" || narrower && op != "==" {
		return unknownValue(c, op, right)
	}
	if narrower {
		c = c.Narrowed("the policy names no IPv6 addresses that stand for IPv4 ones (::ffff:0:0/96)")
	}
	t := AddrTest{In: set}
	if op == "!=" {
		t = t.Not()
	}
	return s.side(c, t)
}

// addrs returns a set of addresses. narrower is true if some of the addresses are left out.
func (r *nftRuleReader) addrs(right any) (set *AddrSet, narrower, ok bool) {
	if name, ok := right.(string); ok && strings.HasPrefix(name, "@") {
		found := r.file.named(r.head, name)
		if found == nil || !found.IsAddrs() {
			return nil, false, false
		}
		return withSet(found.Set), false, true
	}
	list, ok := listOf(right)
	if !ok {
		list = []any{right}
	}
	var ranges []netipx.IPRange
	for _, v := range list {
		v, _ = element(v)
		a, ok := addrRange(v)
		switch {
		case !ok:
			return nil, false, false
		case Mapped(a):
			narrower = true
		default:
			ranges = append(ranges, a)
		}
	}
	return &AddrSet{Ranges: Join(ranges)}, narrower, len(ranges) > 0
}

func withSet(s *Set) *AddrSet { return &AddrSet{Sets: []*Set{s}} }

// tuples reads a lookup of several fields at once.
func (r *nftRuleReader) tuples(parts []any, op string, right any) []Cond {
	list, ok := listOf(right)
	if name, isName := right.(string); isName {
		set := r.file.named(r.head, name)
		if set == nil || set.Dynamic {
			return []Cond{Cond{}.WithUnknown("set " + name)}
		}
		list, ok = set.elem, true
	}
	if !ok {
		list = []any{right}
	}
	if op != "==" || len(list) > MaxTuples {
		return []Cond{Cond{}.WithUnknown(fmt.Sprintf("%d combinations of values, compared by %s", len(list), op))}
	}
	var alts []Cond
	for _, e := range list {
		e, _ = element(e)
		alts = append(alts, r.tuple(parts, e))
	}
	return alts
}

// tuple returns the Cond for one combination of values.
func (r *nftRuleReader) tuple(parts []any, e any) Cond {
	vals, ok := member(e, "concat").([]any)
	if !ok || len(vals) != len(parts) {
		return Cond{}.WithUnknown("the combination " + compact(e))
	}
	var c Cond
	for i := range parts {
		for _, m := range r.meets(parts[i], "==", vals[i]) {
			c = c.And(m)
		}
	}
	return c
}
