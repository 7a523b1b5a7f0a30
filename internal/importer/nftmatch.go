package importer

import (
	"fmt"
	"strings"

	"go4.org/netipx"
)

// meets is what it means that an expression compares so with a value: any of the conds.
func (r *nftReader) meets(left any, op string, right any) []cond {
	if parts, ok := member(left, "concat").([]any); ok {
		return r.tuples(parts, op, right)
	}
	s := selectorOf(left)
	c := s.given
	switch {
	case s.unknown != "":
		c = c.withUnknown(s.unknown)
	case s.status && right == "dnat" && (op == "in" || op == "=="):
		c.dnat = true
	case s.status:
		c = c.withUnknown("ct status")
	case s.device:
		c = s.devices(c, op, right)
	case s.kinds:
		c = s.addrKind(c, op, right)
	case s.side != nil:
		c = r.address(c, s, op, right)
	default:
		c = r.number(c, s, op, right)
	}
	return []cond{c}
}

func unknownValue(c cond, op string, right any) cond {
	return c.withUnknown(shorten(fmt.Sprintf("the comparison %s %s", op, compact(right))))
}

// devices reads the names of devices.
func (s selector) devices(c cond, op string, right any) cond {
	list, ok := listOf(right)
	if !ok {
		list = []any{right}
	}
	t := deviceTest{not: op == "!="}
	for _, v := range list {
		v, _ = element(v)
		name, ok := v.(string)
		if !ok || strings.HasPrefix(name, "@") || op != "==" && op != "!=" {
			return unknownValue(c, op, right)
		}
		t.names = append(t.names, name)
	}
	c.devices = append(c.devices, t)
	return c
}

// addrKind reads the kinds of addresses that fib finds.
func (s selector) addrKind(c cond, op string, right any) cond {
	list, ok := listOf(right)
	if !ok {
		list = []any{right}
	}
	var names []string
	for _, v := range list {
		names = append(names, fmt.Sprint(v))
	}
	set, narrower, ok := addrKinds(strings.Join(names, ","))
	if !ok || narrower && op != "==" || op != "==" && op != "!=" {
		return unknownValue(c, op, right)
	}
	t := addrTest{in: set}
	if op == "!=" {
		t = t.not()
	}
	c = s.side(c, t)
	if narrower {
		c = c.narrowed(directedBroadcast)
	}
	return c
}

// address reads addresses, or the name of a set of them.
func (r *nftReader) address(c cond, s selector, op string, right any) cond {
	set, narrower, ok := r.addrs(right)
	if !ok || op != "==" && op != "!=" || narrower && op != "==" {
		return unknownValue(c, op, right)
	}
	if narrower {
		c = c.narrowed("the policy names no IPv6 addresses that stand for IPv4 ones (::ffff:0:0/96)")
	}
	t := addrTest{in: set}
	if op == "!=" {
		t = t.not()
	}
	return s.side(c, t)
}

// addrs is a set of addresses; narrower says that some of them are left out.
func (r *nftReader) addrs(right any) (set *addrSet, narrower, ok bool) {
	if name, ok := right.(string); ok && strings.HasPrefix(name, "@") {
		found := r.file.named(r.head, name)
		if found == nil || !found.isAddrs() {
			return nil, false, false
		}
		return withSet(found.set), false, true
	}
	list, ok := listOf(right)
	if !ok {
		list = []any{right}
	}
	var ranges []netipx.IPRange
	for _, v := range list {
		v, _ = element(v)
		a, ok := nftAddr(v)
		switch {
		case !ok:
			return nil, false, false
		case mapped(a):
			narrower = true
		default:
			ranges = append(ranges, a)
		}
	}
	return &addrSet{ranges: join(ranges)}, narrower, len(ranges) > 0
}

func withSet(s *set) *addrSet { return &addrSet{sets: []*set{s}} }

// tuples is a lookup of several fields at once.
func (r *nftReader) tuples(parts []any, op string, right any) []cond {
	list, ok := listOf(right)
	if name, isName := right.(string); isName {
		set := r.file.named(r.head, name)
		if set == nil || set.dynamic {
			return []cond{cond{}.withUnknown("set " + name)}
		}
		list, ok = set.elem, true
	}
	if !ok {
		list = []any{right}
	}
	if op != "==" || len(list) > maxTuples {
		return []cond{cond{}.withUnknown(fmt.Sprintf("%d combinations of values, compared by %s", len(list), op))}
	}
	var alts []cond
	for _, e := range list {
		e, _ = element(e)
		alts = append(alts, r.tuple(parts, e))
	}
	return alts
}

// tuple is one combination of values.
func (r *nftReader) tuple(parts []any, e any) cond {
	vals, ok := member(e, "concat").([]any)
	if !ok || len(vals) != len(parts) {
		return cond{}.withUnknown("the combination " + compact(e))
	}
	var c cond
	for i := range parts {
		for _, m := range r.meets(parts[i], "==", vals[i]) {
			c = c.and(m)
		}
	}
	return c
}
