package importer

import (
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
)

// number compares a field.
func (r *nftReader) number(c cond, s selector, op string, right any) cond {
	c.anyPorts = s.both
	if name, ok := right.(string); ok && strings.HasPrefix(name, "@") {
		set := r.file.named(r.head, name)
		if set == nil || set.dynamic {
			return c.withUnknown("set " + name[1:])
		}
		right = set.elem
	}
	v, ok := s.values(op, right)
	if !ok {
		return unknownValue(c, op, right)
	}
	return c.with(s.field, v)
}

// otherPorts marks conds that hold for ports of other protocols than the policy's, too.
func otherPorts(alts []cond) {
	for i, c := range alts {
		if p := c.field[packet.Proto]; c.anyPorts && (p == nil || !p.within(only(protoTCP, protoUDP))) {
			alts[i] = c.narrowed("of the protocols with ports the policy reads those of TCP and UDP")
		}
	}
}

// values is what the field can be.
func (s selector) values(op string, right any) (values, bool) {
	if s.flags {
		return s.flagValues(op, right)
	}
	v, ok := s.compared(op, right)
	if !ok {
		return nil, false
	}
	if s.domain != nil {
		v = v.and(s.domain)
	}
	return v, true
}

// compared is the values for which a comparison holds, in the field's coding.
func (s selector) compared(op string, right any) (values, bool) {
	v, ok := s.kind.spans(right)
	equality := op == "==" || op == "!=" || op == "in"
	if !ok || !equality && (len(v) == 0 || s.field == packet.Fragment) {
		return nil, false
	}
	last := s.field.Size() - 1
	if s.field == packet.DPort || s.field == packet.SPort {
		last = maxPort
	}
	switch op {
	case "==", "in":
	case "!=":
		return s.coded(v).not(s.field), true
	case "<":
		v = values{{0, last}}.and(below(v[0].first))
	case "<=":
		v = below(v[0].first + 1)
	case ">":
		v = values{{v[0].last, last}}.and(below(last + 1)).and(only(v[0].last).not(s.field))
	case ">=":
		v = values{{v[0].first, last}}
	default:
		return nil, false
	}
	return s.coded(v), true
}

// coded brings nft's values into the field's coding: messages have their code, and ports their protocol.
func (s selector) coded(v values) values {
	switch {
	case s.field == packet.ICMP:
		return s.messages(v)
	case s.both:
		return v.or(v.shifted(packet.PortUDP))
	case s.field == packet.Fragment: // offset 0
		return only(packet.FragmentNone, packet.FragmentFirst)
	}
	return v.shifted(s.shift)
}

// flagValues is the flags octets for which a comparison holds. `in` wants one bit of right, the others all that the
// mask leaves.
func (s selector) flagValues(op string, right any) (values, bool) {
	if set, ok := member(right, "set").([]any); ok {
		out := values{}
		for _, e := range set {
			e, _ = element(e)
			v, ok := s.flagValues("==", e)
			if !ok {
				return nil, false
			}
			out = out.or(v)
		}
		if op == "!=" {
			return s.domain.and(out.not(packet.Flags)), true
		}
		return out, op == "=="
	}
	bits, ok := s.kind.bits(right)
	switch {
	case !ok:
		return nil, false
	case op == "in":
		return flagsWhere(func(f uint32) bool { return f&s.mask&bits != 0 }), true
	case op == "==":
		return flagsWhere(func(f uint32) bool { return f&s.mask == bits }), true
	case op == "!=":
		return flagsWhere(func(f uint32) bool { return f&s.mask != bits }), true
	}
	return nil, false
}
