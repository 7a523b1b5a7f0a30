package importer

import (
	"slices"

	"github.com/floodwall/floodwall/internal/packet"
)

// cond is what a rule asks of a packet: all of it must hold. The zero cond holds for every packet.
type cond struct {
	field    [packet.NumKeys]values
	src, dst addrTest
	devices  []deviceTest

	limit    *limit     // it holds for packets above a rate, or below
	marks    []markTest // of the packet, or its connection
	whole    bool       // its packets have been put together from their fragments
	dnat     bool       // its destination was translated
	anyPorts bool       // its ports are those of every protocol that has any; the policy reads TCP's and UDP's
	unknown  []string   // what else the rule asks, that the policy cannot say
	narrower []string   // where the rule matches more packets than this says
}

// deviceTest holds when the packet came in through one of the devices, or with not through none of them. A name ending
// in * stands for all that begin so.
type deviceTest struct {
	names []string
	not   bool
}

// markTest is a test of a mark that the host itself gives to packets.
type markTest struct {
	of          string // whose, in the words of messages
	value, mask uint32
	not         bool
}

// with is c and a test of one field.
func (c cond) with(f packet.Field, v values) cond {
	c.field[f] = c.field[f].and(v)
	return c
}

// withUnknown is c and something that the policy cannot say.
func (c cond) withUnknown(what string) cond {
	if !slices.Contains(c.unknown, what) {
		c.unknown = append(slices.Clip(c.unknown), what)
	}
	return c
}

// from is c and a test of the source address.
func (c cond) from(t addrTest) cond {
	var ok bool
	if c.src, ok = c.src.and(t); !ok {
		return c.withUnknown("two sets at once")
	}
	return c
}

// to is c and a test of the destination address.
func (c cond) to(t addrTest) cond {
	var ok bool
	if c.dst, ok = c.dst.and(t); !ok {
		return c.withUnknown("two sets at once")
	}
	return c
}

// and is a cond that holds when both hold.
func (c cond) and(d cond) cond {
	for f := range packet.NumKeys {
		c = c.with(f, d.field[f])
	}
	c = c.from(d.src).to(d.dst)
	c.devices = append(slices.Clip(c.devices), d.devices...)
	c.anyPorts = c.anyPorts || d.anyPorts
	c.marks = append(slices.Clip(c.marks), d.marks...)
	switch {
	case c.limit == nil:
		c.limit = d.limit
	case d.limit != nil && d.limit != c.limit:
		c = c.withUnknown("two limits at once")
	}
	c.dnat = c.dnat || d.dnat
	for _, u := range d.unknown {
		c = c.withUnknown(u)
	}
	c.narrower = append(slices.Clip(c.narrower), d.narrower...)
	return c
}

// without is conds that together hold for the packets that meet c and not d, which has no unknown parts: for each
// part of d one cond in which that part does not hold and those before it do.
func (c cond) without(d cond, f family) (rest []cond) {
	keep := func(part cond) {
		if p, ok := c.and(part).possible(f); ok {
			rest = append(rest, p)
		}
	}
	for k, v := range d.field {
		if v != nil {
			keep(cond{}.with(packet.Field(k), v.not(packet.Field(k))))
			c = c.with(packet.Field(k), v)
		}
	}
	for _, t := range d.src.parts() {
		keep(cond{}.from(t.not()))
		c = c.from(t)
	}
	for _, t := range d.dst.parts() {
		keep(cond{}.to(t.not()))
		c = c.to(t)
	}
	return rest
}

// parts is the two halves of t, each a test of its own.
func (t addrTest) parts() (parts []addrTest) {
	if t.in != nil {
		parts = append(parts, addrTest{in: t.in})
	}
	if t.out != nil {
		parts = append(parts, addrTest{out: t.out})
	}
	return parts
}

// not is the opposite of t, which has one half.
func (t addrTest) not() addrTest { return addrTest{in: t.out, out: t.in} }

// narrowed is c, which does not hold for all packets that the rule means.
func (c cond) narrowed(why string) cond {
	if !slices.Contains(c.narrower, why) {
		c.narrower = append(slices.Clip(c.narrower), why)
	}
	return c
}
