// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// number compares a field of the packet with a value or a set.
func (r *nftRuleReader) number(c Cond, s selector, op string, right any) Cond {
	c.AnyPorts = s.both
	if name, ok := right.(string); ok && strings.HasPrefix(name, "@") {
		set := r.file.named(r.head, name)
		if set == nil || set.Dynamic {
			return c.WithUnknown("set " + name[1:])
		}
		right = set.elem
	}
	v, ok := s.values(op, right)
	if !ok {
		return unknownValue(c, op, right)
	}
	return c.With(s.field, v)
}

// otherPorts marks the Conds of rules that also match ports of protocols that the policy does not know.
func otherPorts(alts []Cond) {
	for i, c := range alts {
		if p := c.Field[packet.Proto]; c.AnyPorts && (p == nil || !p.Within(Only(ProtoTCP, ProtoUDP))) {
			alts[i] = c.Narrowed("of the protocols with ports the policy reads those of TCP and UDP")
		}
	}
}

// values returns the values of the field for which a comparison holds.
func (s selector) values(op string, right any) (Values, bool) {
	if s.flags {
		return s.flagValues(op, right)
	}
	if s.kind == nil {
		return presentValues(op, right)
	}
	v, ok := s.compared(op, right)
	if !ok {
		return nil, false
	}
	if s.domain != nil {
		v = v.And(s.domain)
	}
	return v, true
}

// presentValues returns the values of packet.MSS for a test whether a packet has an MSS option.
func presentValues(op string, right any) (Values, bool) {
	there, ok := right.(bool)
	if op != "==" && op != "!=" {
		return nil, false
	}
	v := Values{{First: 0, Last: MaxMSS}}
	if there != (op == "==") {
		v = v.Not(packet.MSS)
	}
	return v, ok
}

// compared returns the values for which a comparison holds, in the field's coding.
func (s selector) compared(op string, right any) (Values, bool) {
	v, ok := s.kind.spans(right)
	equality := op == "==" || op == "!=" || op == "in"
	if !ok || !equality && (len(v) == 0 || s.field == packet.Fragment) {
		return nil, false
	}
	last := s.field.Size() - 1
	if s.field == packet.DPort || s.field == packet.SPort {
		last = MaxPort
	}
	switch op {
	case "==", "in":
	case "!=":
		return s.coded(v).Not(s.field), true
	case "<":
		v = Values{{First: 0, Last: last}}.And(Below(v[0].First))
	case "<=":
		v = Below(v[0].First + 1)
	case ">":
		v = Values{{First: v[0].Last, Last: last}}.And(Below(last + 1)).And(Only(v[0].Last).Not(s.field))
	case ">=":
		v = Values{{First: v[0].First, Last: last}}
	default:
		return nil, false
	}
	return s.coded(v), true
}

// coded converts nft's values to the field's coding: messages have a type and a code, and ports have a protocol.
func (s selector) coded(v Values) Values {
	switch {
	case s.field == packet.ICMP:
		return s.messages(v)
	case s.both:
		return v.Or(v.Shifted(packet.PortUDP))
	case s.field == packet.Fragment: // offset 0
		return Only(packet.FragmentNone, packet.FragmentFirst)
	}
	return v.Shifted(s.shift)
}

// flagValues returns the flags bytes for which a comparison holds. With `in`, at least one bit of right must be set.
// With other operators, all bits under the mask are compared.
func (s selector) flagValues(op string, right any) (Values, bool) {
	if set, ok := member(right, "set").([]any); ok {
		out := Values{}
		for _, e := range set {
			e, _ = element(e)
			v, ok := s.flagValues("==", e)
			if !ok {
				return nil, false
			}
			out = out.Or(v)
		}
		if op == "!=" {
			return s.domain.And(out.Not(packet.Flags)), true
		}
		return out, op == "=="
	}
	bits, ok := s.kind.bits(right)
	switch {
	case !ok:
		return nil, false
	case op == "in":
		return FlagsWhere(func(f uint32) bool { return f&s.mask&bits != 0 }), true
	case op == "==":
		return FlagsWhere(func(f uint32) bool { return f&s.mask == bits }), true
	case op == "!=":
		return FlagsWhere(func(f uint32) bool { return f&s.mask != bits }), true
	}
	return nil, false
}
