// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Cond is the condition of a rule: all parts must hold for a packet. The zero Cond holds for every packet.
type Cond struct {
	Field    [packet.NumKeys]Values
	Src, Dst AddrTest
	Devices  []DeviceTest
	Payload  []Payload // all of them must hold

	Limit    *Limit     // holds for packets above a rate, or for packets below it
	Marks    []MarkTest // tests of marks of the packet or its connection
	Whole    bool       // the packets were reassembled from fragments
	DNAT     bool       // the packet's destination was translated
	Routed   bool       // the packet has an IPv6 routing header of type 0; a policy has a check that drops such packets
	AnyPorts bool       // the ports are those of any protocol with ports; the policy reads only those of TCP and UDP
	Unknown  []string   // tests of the rule that the policy cannot express
	Narrower []string   // why the rule matches more packets than this Cond
}

// DeviceTest holds when the packet arrived on one of the devices or, with Not, on none of them. A name that ends in * stands for all names with that
// prefix.
type DeviceTest struct {
	Names []string
	Not   bool
}

// MarkTest is a test of a mark that the host itself gives to packets.
type MarkTest struct {
	Of          string // whose mark it is, as text for messages
	Value, Mask uint32
	Not         bool
}

// With returns c with a test of one field added.
func (c Cond) With(f packet.Field, v Values) Cond {
	c.Field[f] = c.Field[f].And(v)
	return c
}

// WithUnknown returns c with a test added that the policy cannot express.
func (c Cond) WithUnknown(what string) Cond {
	if !slices.Contains(c.Unknown, what) {
		c.Unknown = append(slices.Clip(c.Unknown), what)
	}
	return c
}

// From returns c with a test of the source address added.
func (c Cond) From(t AddrTest) Cond {
	var ok bool
	if c.Src, ok = c.Src.and(t); !ok {
		return c.WithUnknown("two sets at once")
	}
	return c
}

// To returns c with a test of the destination address added.
func (c Cond) To(t AddrTest) Cond {
	var ok bool
	if c.Dst, ok = c.Dst.and(t); !ok {
		return c.WithUnknown("two sets at once")
	}
	return c
}

// And returns a Cond that holds when both c and d hold.
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

// Without returns conditions that together hold for the packets for which c holds and d does not. d must have no unknown parts. For each part of d
// there is one condition: that part does not hold, and the parts before it hold.
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

// parts splits t into its two halves, each as a test.
func (t AddrTest) parts() (parts []AddrTest) {
	if t.In != nil {
		parts = append(parts, AddrTest{In: t.In})
	}
	if t.Out != nil {
		parts = append(parts, AddrTest{Out: t.Out})
	}
	return parts
}

// Not returns the opposite of t, which must have one half.
func (t AddrTest) Not() AddrTest { return AddrTest{In: t.Out, Out: t.In} }

// Narrowed returns c with a remark that the rule matches more packets than c.
func (c Cond) Narrowed(why string) Cond {
	if !slices.Contains(c.Narrower, why) {
		c.Narrower = append(slices.Clip(c.Narrower), why)
	}
	return c
}

// OfSYN returns c. If c tests the MSS option of segments both with and without SYN, OfSYN marks c as narrowed, because the policy reads the option
// only in segments with SYN.
func (c Cond) OfSYN() Cond {
	if flags := c.Field[packet.Flags]; c.Field[packet.MSS] == nil || flags.Within(withSYN) || flags.Within(withoutSYN) {
		return c
	}
	return c.Narrowed("it asks for the MSS option of any segment, and the policy for that of segments with SYN")
}

// Holds reports whether packets that arrive on a device pass the test.
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
