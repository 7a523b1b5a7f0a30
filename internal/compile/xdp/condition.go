// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// conditions are all tests of rules except those of addresses and fields. Generated code calls the test of a condition by its number, after all other
// tests of the rule have succeeded.
type conditions struct {
	program  *ir.Program
	slots    []uint32
	numbers  map[int]int // the number of the condition of each rule that has one
	patterns *patterns
	names    *names
	limits   *limits
}

const (
	maxConditions = 1000 // not counting those of essential rules; the verifier follows one loop iteration for each
	maxLayers     = 8    // MAX_LAYERS of bpf/limit.h
	maxSources    = 4    // MAX_SOURCES of bpf/condition.h

	conditionObserve = 1
	conditionReply   = 2
	conditionSpare   = 4
)

func compileConditions(p *ir.Program, slots []uint32) (*conditions, error) {
	c := &conditions{program: p, slots: slots, numbers: map[int]int{}}
	for i := range p.Rules {
		if p.Rules[i].Conditional() {
			c.numbers[i] = len(c.numbers)
		}
		if n := len(p.Rules[i].Over); n > maxLayers {
			return nil, fmt.Errorf("rule %q has %d limits, at most %d fit", p.Rules[i].Name, n, maxLayers)
		}
	}
	if n := c.usual(); n > maxConditions {
		return nil, fmt.Errorf("%d rules ask for payload, names or limits, or only observe; at most %d can", n, maxConditions)
	}
	var err error
	if c.patterns, err = compilePatterns(p); err != nil {
		return nil, err
	}
	if c.names, err = compileNames(p); err != nil {
		return nil, err
	}
	c.limits, err = compileLimits(p)
	return c, err
}

// of returns the number of a rule's condition. ok is false if the rule has none.
func (c *conditions) of(rule int) (number int, ok bool) {
	number, ok = c.numbers[rule]
	return number, ok
}

// usual returns the number of conditions that packets are likely to reach. It does not count conditions of essential rules, which few packets reach,
// and the condition of the rule for replies, which is the last.
func (c *conditions) usual() (n int) {
	for rule := range c.numbers {
		if r := &c.program.Rules[rule]; r.Kind != ir.RuleKindEssential && !r.Reply {
			n++
		}
	}
	return n
}

func (c *conditions) none() bool { return len(c.numbers) == 0 }

// parts returns the components with the map of conditions and the maps to which conditions refer.
func (c *conditions) parts() []component {
	parts := []component{c.patterns.part(), c.names.part(), c.names.zones(), c.limits.part(), dnsPart(c.program), mssPart(c.program), actionsPart(c.program, c.slots)}
	if c.none() {
		return parts
	}
	shape := image.Shape{ValueSize: uint32(image.ConditionSize), Entries: uint32(len(c.numbers))}
	return append(parts, component{
		shapes: map[string]image.Shape{image.Conditions: shape},
		fill: func(memory map[string][]byte) error {
			all := into(memory, image.Conditions, shape)
			for rule, number := range c.numbers {
				c.write(all[number*image.ConditionSize:], rule)
			}
			return nil
		},
	})
}

// write writes the struct condition of a rule.
func (c *conditions) write(to []byte, rule int) {
	r := &c.program.Rules[rule]
	var s image.ConditionRecord
	for i, m := range r.Payload {
		match := &s.Payload[i]
		match.Patterns, match.At, match.Places = c.patterns.match(m)
		match.Asked = 1
		if m.Not {
			match.Not = 1
		}
	}
	for _, m := range r.Names {
		if m.Not {
			s.NoNames |= c.names.bits(m)
		} else {
			s.Names |= c.names.bits(m)
		}
	}
	if r.Unanswered {
		s.Names |= c.names.unanswered
	}
	if len(r.Over) > 0 {
		s.Limit, s.Layers = uint32(r.Over[0]), uint32(len(r.Over))
		s.Proved = c.limits.proved[rule]
	}
	if r.Until != 0 {
		s.Until = image.SecondOf(r.Until)
	}
	s.Sources = uint32(len(r.Sources))
	for i, p := range r.Sources {
		address, mask := addressAndMask(p)
		to := &s.Source[i]
		to.Prefix.Hi, to.Prefix.Lo = halves(address)
		to.Mask.Hi, to.Mask.Lo = halves(mask)
	}
	if r.Observe {
		s.Flags, s.Slot = conditionObserve, c.slots[rule]
	}
	if r.Reply {
		s.Flags |= conditionReply
	}
	if r.Spares {
		s.Flags |= conditionReply | conditionSpare
	}
	s.Asks, s.Flood = uint16(r.Asks), uint16(r.Flood)
	if r.Asks == ir.AsksSpent {
		s.Layers = 0 // these limits are tested, but not charged
	}
	image.Put(to, s)
}

// addressAndMask returns a prefix as an IPv6 address and mask. IPv4 prefixes are in IPv4-mapped form.
func addressAndMask(p netip.Prefix) (address, mask [16]byte) {
	for i := range 128 - p.Addr().BitLen() + p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return p.Masked().Addr().As16(), mask
}

// halves returns the first and the last 8 bytes of an address as numbers.
func halves(a [16]byte) (hi, lo uint64) {
	return binary.BigEndian.Uint64(a[:]), binary.BigEndian.Uint64(a[8:])
}
