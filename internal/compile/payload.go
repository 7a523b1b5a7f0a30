package compile

import (
	"encoding/binary"
	"fmt"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/xdp"
)

// Limits of bpf/payload.h, which documents the maps.
const (
	maxPatterns = 64
	maxPlaces   = 16   // of one match
	maxWindow   = 1024 // octets of the payload that are searched

	patternSize = 136 // of struct pattern
	patternText = 64
	placeSize   = 40 // of struct place
	placeText   = 16
)

// patterns are what rules ask of the payload: patterns, each a bit of what the search finds, and octets at fixed places,
// those of one match next to each other.
type patterns struct {
	list   []ir.Pattern // in the order of the map
	bits   map[string]int
	places []ir.At
	at     map[string]uint16 // the first place of a match
}

func compilePatterns(p *ir.Program) (*patterns, error) {
	c := &patterns{bits: map[string]int{}, at: map[string]uint16{}}
	for i := range p.Rules {
		for _, m := range p.Rules[i].Payload {
			if err := c.add(m); err != nil {
				return nil, fmt.Errorf("rule %q: %w", p.Rules[i].Name, err)
			}
		}
	}
	if len(c.list) > maxPatterns {
		return nil, fmt.Errorf("rules ask for %d different texts in the payload, at most %d can be searched for", len(c.list), maxPatterns)
	}
	c.list = inTableOrder(c.list)
	for i, pattern := range c.list {
		c.bits[patternKey(pattern)] = i
	}
	return c, nil
}

func (c *patterns) add(m ir.PayloadMatch) error {
	for _, pattern := range m.Any {
		if n := len(pattern.Text); n < 1 || n > patternText {
			return fmt.Errorf("payload has a text of %d octets, 1 to %d can be searched for", n, patternText)
		}
		key := patternKey(pattern)
		if _, known := c.bits[key]; !known {
			c.bits[key] = len(c.list)
			c.list = append(c.list, pattern)
		}
	}
	if len(m.At) > maxPlaces {
		return fmt.Errorf("payload has %d places, at most %d fit", len(m.At), maxPlaces)
	}
	if key := fmt.Sprint(m.At); len(m.At) > 0 {
		if _, known := c.at[key]; !known {
			if len(c.places)+len(m.At) > 1<<16 {
				return fmt.Errorf("payload has more than %d places in all rules", 1<<16)
			}
			c.at[key] = uint16(len(c.places))
			c.places = append(c.places, m.At...)
		}
	}
	return nil
}

// patternKey is the same for patterns that mean the same.
func patternKey(p ir.Pattern) string { return fmt.Sprint(p.NoCase, p.Within, p.Text) }

// match is what struct payload_match of bpf/condition.h has of a match.
func (c *patterns) match(m ir.PayloadMatch) (found uint64, at, places uint16) {
	for _, pattern := range m.Any {
		found |= 1 << c.bits[patternKey(pattern)]
	}
	return found, c.at[fmt.Sprint(m.At)], uint16(len(m.At))
}

func (c *patterns) part() part {
	p := part{constants: map[string]any{}, shapes: map[string]xdp.Shape{}}
	if len(c.places) > 0 {
		p.shapes[xdp.Places] = xdp.Shape{ValueSize: placeSize, Entries: uint32(len(c.places))}
		p.then(func(memory map[string][]byte) error {
			for i := range c.places {
				writePlace(memory[xdp.Places][i*placeSize:][:placeSize], &c.places[i])
			}
			return nil
		})
	}
	if len(c.list) > 0 {
		p.constants["window_length"] = uint32(c.window())
		p.constants["short_patterns"] = uint32(shortPatterns(c.list))
		p.shapes[xdp.Patterns] = xdp.Shape{ValueSize: patternTableSize, Entries: 1}
		p.then(func(memory map[string][]byte) error {
			writePatterns(memory[xdp.Patterns], c.list)
			return nil
		})
	}
	return p
}

// window is how many octets of the payload any pattern wants searched.
func (c *patterns) window() (octets uint16) {
	for _, pattern := range c.list {
		octets = max(octets, pattern.Within)
	}
	return min(octets, maxWindow)
}

// writePlace writes a struct place.
func writePlace(to []byte, at *ir.At) {
	binary.NativeEndian.PutUint16(to, at.Offset)
	if at.Base == ir.BaseL4 {
		to[2] = 1
	}
	to[3] = uint8(len(at.Value))
	copy(to[8:8+placeText], at.Value)
	copy(to[8+placeText:], at.Mask)
}
