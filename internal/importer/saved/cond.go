package saved

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Cond is what a rule asks of a packet: all of it must hold. The zero cond holds for every packet.
type Cond struct {
	Field    [packet.NumKeys]Values
	Src, Dst AddrTest
	Devices  []DeviceTest
	Payload  []Payload // all of them

	Limit    *Limit     // it holds for packets above a rate, or below
	Marks    []MarkTest // of the packet, or its connection
	Whole    bool       // its packets have been put together from their fragments
	DNAT     bool       // its destination was translated
	Routed   bool       // it has an IPv6 routing header of type 0: a policy has a check for those that drops them
	AnyPorts bool       // its ports are those of every protocol that has any; the policy reads TCP's and UDP's
	Unknown  []string   // what else the rule asks, that the policy cannot say
	Narrower []string   // where the rule matches more packets than this says
}

// DeviceTest holds when the packet came in through one of the devices, or with not through none of them. A name ending
// in * stands for all that begin so.
type DeviceTest struct {
	Names []string
	Not   bool
}

// MarkTest is a test of a mark that the host itself gives to packets.
type MarkTest struct {
	Of          string // whose, in the words of messages
	Value, Mask uint32
	Not         bool
}

// With is c and a test of one field.
func (c Cond) With(f packet.Field, v Values) Cond {
	c.Field[f] = c.Field[f].And(v)
	return c
}

// WithUnknown is c and something that the policy cannot say.
func (c Cond) WithUnknown(what string) Cond {
	if !slices.Contains(c.Unknown, what) {
		c.Unknown = append(slices.Clip(c.Unknown), what)
	}
	return c
}

// From is c and a test of the source address.
func (c Cond) From(t AddrTest) Cond {
	var ok bool
	if c.Src, ok = c.Src.and(t); !ok {
		return c.WithUnknown("two sets at once")
	}
	return c
}

// To is c and a test of the destination address.
func (c Cond) To(t AddrTest) Cond {
	var ok bool
	if c.Dst, ok = c.Dst.and(t); !ok {
		return c.WithUnknown("two sets at once")
	}
	return c
}

// And is a cond that holds when both hold.
func (c Cond) And(d Cond) Cond {
	for f := range packet.NumKeys {
		c = c.With(f, d.Field[f])
	}
	c = c.From(d.Src).To(d.Dst)
	for _, p := range d.Payload {
		c = c.WithPayload(p)
	}
	c.Devices = append(slices.Clip(c.Devices), d.Devices...)
	c.AnyPorts = c.AnyPorts || d.AnyPorts
	c.Marks = append(slices.Clip(c.Marks), d.Marks...)
	switch {
	case c.Limit == nil:
		c.Limit = d.Limit
	case d.Limit != nil && d.Limit != c.Limit:
		c = c.WithUnknown("two limits at once")
	}
	c.DNAT = c.DNAT || d.DNAT
	c.Routed = c.Routed || d.Routed
	for _, u := range d.Unknown {
		c = c.WithUnknown(u)
	}
	c.Narrower = append(slices.Clip(c.Narrower), d.Narrower...)
	return c
}

// Without is conds that together hold for the packets that meet c and not d, which has no unknown parts: for each
// part of d one cond in which that part does not hold and those before it do.
func (c Cond) Without(d Cond, f Family) (rest []Cond) {
	keep := func(part Cond) {
		if p, ok := c.And(part).Possible(f); ok {
			rest = append(rest, p)
		}
	}
	for k, v := range d.Field {
		if v != nil {
			keep(Cond{}.With(packet.Field(k), v.Not(packet.Field(k))))
			c = c.With(packet.Field(k), v)
		}
	}
	for _, t := range d.Src.parts() {
		keep(Cond{}.From(t.Not()))
		c = c.From(t)
	}
	for _, t := range d.Dst.parts() {
		keep(Cond{}.To(t.Not()))
		c = c.To(t)
	}
	for _, p := range d.Payload {
		p.Not = !p.Not
		keep(Cond{}.WithPayload(p))
		p.Not = !p.Not
		c = c.WithPayload(p)
	}
	return rest
}

// parts is the two halves of t, each a test of its own.
func (t AddrTest) parts() (parts []AddrTest) {
	if t.In != nil {
		parts = append(parts, AddrTest{In: t.In})
	}
	if t.Out != nil {
		parts = append(parts, AddrTest{Out: t.Out})
	}
	return parts
}

// Not is the opposite of t, which has one half.
func (t AddrTest) Not() AddrTest { return AddrTest{In: t.Out, Out: t.In} }

// Narrowed is c, which does not hold for all packets that the rule means.
func (c Cond) Narrowed(why string) Cond {
	if !slices.Contains(c.Narrower, why) {
		c.Narrower = append(slices.Clip(c.Narrower), why)
	}
	return c
}

// OfSYN is c, which asks for sizes of the MSS option: the rule reads those of segments without SYN, too.
func (c Cond) OfSYN() Cond {
	if flags := c.Field[packet.Flags]; c.Field[packet.MSS] == nil || flags.Within(withSYN) || flags.Within(withoutSYN) {
		return c
	}
	return c.Narrowed("it asks for the MSS option of any segment, and the policy for that of segments with SYN")
}

// Holds reports whether packets that come in through a device pass the test.
func (t DeviceTest) Holds(device string) bool {
	return slices.ContainsFunc(t.Names, func(name string) bool {
		prefix, wild := strings.CutSuffix(name, "*")
		return name == device || wild && strings.HasPrefix(device, prefix)
	}) != t.Not
}

// Everything reports whether c holds for every packet of its family.
func (c Cond) Everything() bool {
	for f, v := range c.Field {
		if v != nil && packet.Field(f) != packet.Family {
			return false
		}
	}
	return c.Src == AddrTest{} && c.Dst == AddrTest{} && len(c.Payload) == 0
}
