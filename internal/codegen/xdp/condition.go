package xdp

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/xdp"
)

// conditions are what rules ask for beside addresses and fields. Generated code asks for them by number, when all else
// that the rule asks for holds.
type conditions struct {
	program  *ir.Program
	slots    []uint32
	numbers  map[int]int // of each rule that has a condition
	patterns *patterns
	names    *names
	limits   *limits
}

const (
	maxConditions = 1000 // beside those of essential rules; each is a round that the verifier follows
	maxLayers     = 8    // enum in bpf/condition.h
	maxSources    = 4    // likewise
	conditionSize = 192  // of struct condition
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

// of is the number of a rule's condition, if it has one.
func (c *conditions) of(rule int) (number int, ok bool) {
	number, ok = c.numbers[rule]
	return number, ok
}

// usual is how many conditions packets are likely to be asked for: few packets come to those of essential rules.
func (c *conditions) usual() (n int) {
	for rule := range c.numbers {
		if c.program.Rules[rule].Kind != ir.RuleKindEssential {
			n++
		}
	}
	return n
}

func (c *conditions) none() bool { return len(c.numbers) == 0 }

// parts are the map of conditions and what they refer to.
func (c *conditions) parts() []component {
	parts := []component{c.patterns.part(), c.names.part(), c.limits.part(), dnsPart(c.program), actionsPart(c.program, c.slots)}
	if c.none() {
		return parts
	}
	shape := xdp.Shape{ValueSize: conditionSize, Entries: uint32(len(c.numbers))}
	return append(parts, component{
		shapes: map[string]xdp.Shape{xdp.Conditions: shape},
		fill: func(memory map[string][]byte) error {
			all := into(memory, xdp.Conditions, shape)
			for rule, number := range c.numbers {
				c.write(all[number*conditionSize:], rule)
			}
			return nil
		},
	})
}

// write writes the struct condition of a rule.
func (c *conditions) write(to []byte, rule int) {
	r, order := &c.program.Rules[rule], binary.NativeEndian
	for i, m := range r.Payload {
		found, at, places := c.patterns.match(m)
		match := to[16*i:]
		order.PutUint64(match, found)
		order.PutUint16(match[8:], at)
		order.PutUint16(match[10:], places)
		order.PutUint16(match[12:], 1)
		if m.Not {
			order.PutUint16(match[14:], 1)
		}
	}
	for _, m := range r.Names {
		at := to[32:]
		if m.Not {
			at = to[36:]
		}
		order.PutUint32(at, order.Uint32(at)|c.names.bits(m))
	}
	if len(r.Over) > 0 {
		order.PutUint32(to[40:], uint32(r.Over[0]))
		order.PutUint32(to[44:], uint32(len(r.Over)))
	}
	order.PutUint32(to[56:], uint32(len(r.Sources)))
	for i, p := range r.Sources {
		writeSource(to[64+32*i:], p)
	}
	if r.Observe {
		order.PutUint32(to[48:], 1)
		order.PutUint32(to[52:], c.slots[rule])
	}
}

// writeSource writes a struct source of bpf/condition.h.
func writeSource(to []byte, p netip.Prefix) {
	whole, host := p.Masked().Addr().As16(), p.Addr().BitLen()-p.Bits()
	var mask [16]byte
	for i := range 128 - host {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	for i, b := range [][16]byte{whole, mask} {
		binary.NativeEndian.PutUint64(to[16*i:], binary.BigEndian.Uint64(b[:]))
		binary.NativeEndian.PutUint64(to[16*i+8:], binary.BigEndian.Uint64(b[8:]))
	}
}
