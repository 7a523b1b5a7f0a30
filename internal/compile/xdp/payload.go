// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Limits of bpf/payload.h, which documents the maps.
const (
	maxPatterns = 64
	maxPlaces   = 16   // for one match
	maxWindow   = 1024 // bytes of the payload that are searched

	patternSize = 136 // of struct pattern
	patternText = 64
	placeSize   = 40 // of struct place
	placeText   = 16
)

// patterns has the payload tests of rules: texts, each with a bit in the result of the search, and bytes at fixed offsets. Tests of the same match
// are adjacent.
type patterns struct {
	list   []search // in the order of the map
	bits   map[string]int
	places []ir.At
	at     map[string]uint16 // the index of a match's first place
}

func compilePatterns(p *ir.Program) (*patterns, error) {
	c := &patterns{bits: map[string]int{}, at: map[string]uint16{}}
	var list []ir.Pattern
	for i := range p.Rules {
		for _, m := range p.Rules[i].Payload {
			if err := c.addPlaces(m.At); err != nil {
				return nil, fmt.Errorf("rule %q: %w", p.Rules[i].Name, err)
			}
			list = append(list, m.Any...)
		}
	}
	return c, c.addPatterns(list)
}

// addPatterns assigns a bit to each pattern. Patterns with the same meaning share a bit.
func (c *patterns) addPatterns(list []ir.Pattern) error {
	slices.SortStableFunc(list, func(a, b ir.Pattern) int { return strings.Compare(patternKey(a), patternKey(b)) })
	list = slices.CompactFunc(list, func(a, b ir.Pattern) bool { return patternKey(a) == patternKey(b) })
	if len(list) > maxPatterns {
		return fmt.Errorf("rules ask for %d different texts in the payload, at most %d can be searched for", len(list), maxPatterns)
	}
	for _, pattern := range list {
		if n := len(pattern.Text); n < 1 || n > patternText {
			return fmt.Errorf("payload has a text of %d bytes, 1 to %d can be searched for", n, patternText)
		}
	}
	c.list = searches(list)
	for i := range c.list {
		c.bits[patternKey(c.list[i].Pattern)] = i
	}
	return nil
}

// addPlaces adds the places of a match. If several matches have the same places, they are stored once.
func (c *patterns) addPlaces(list []ir.At) error {
	key := fmt.Sprint(list)
	if _, known := c.at[key]; known || len(list) == 0 {
		return nil
	}
	if len(list) > maxPlaces {
		return fmt.Errorf("payload has %d places, at most %d fit", len(list), maxPlaces)
	}
	if len(c.places)+len(list) > 1<<16 {
		return fmt.Errorf("all rules together ask for more than %d places in the payload", 1<<16)
	}
	c.at[key] = uint16(len(c.places))
	c.places = append(c.places, list...)
	return nil
}

// patternKey returns a text that is equal for patterns with the same meaning.
func patternKey(p ir.Pattern) string { return fmt.Sprint(p.NoCase, p.Within, p.Text) }

// match returns the fields of struct payload_match of bpf/condition.h for a match.
func (c *patterns) match(m ir.PayloadMatch) (found uint64, at, places uint16) {
	for _, pattern := range m.Any {
		found |= 1 << c.bits[patternKey(pattern)]
	}
	return found, c.at[fmt.Sprint(m.At)], uint16(len(m.At))
}

func (c *patterns) part() component {
	p := component{constants: map[string]any{}, shapes: map[string]image.Shape{}}
	if len(c.places) > 0 {
		shape := image.Shape{ValueSize: placeSize, Entries: uint32(len(c.places))}
		p.shapes[image.Places] = shape
		p.then(func(memory map[string][]byte) error {
			all := into(memory, image.Places, shape)
			for i := range c.places {
				writePlace(all[i*placeSize:][:placeSize], &c.places[i])
			}
			return nil
		})
	}
	if len(c.list) > 0 {
		p.constants["window_length"] = uint32(c.window())
		p.constants["short_patterns"] = uint32(c.short())
		if leads := c.leads(); leads != nil {
			p.constants["num_leads"], p.constants["leads"] = uint32(len(leads)), [maxLeads]lead(leads[:maxLeads])
		}
		shape := image.Shape{ValueSize: patternTableSize, Entries: 1}
		p.shapes[image.Patterns] = shape
		p.then(func(memory map[string][]byte) error {
			writePatterns(into(memory, image.Patterns, shape), c.list)
			return nil
		})
	}
	return p
}

// short returns the number of patterns with less than four bytes.
func (c *patterns) short() (n int) {
	for _, p := range c.list {
		if p.slot < 0 {
			n++
		}
	}
	return n
}

// window returns the number of payload bytes that must be searched. It is the largest number that a pattern needs.
func (c *patterns) window() (bytes uint16) {
	for _, pattern := range c.list {
		bytes = max(bytes, pattern.Within)
	}
	return min(bytes, maxWindow)
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
