// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// actionsPart returns the component for actions other than pass and drop. It has the kinds of answers, and the entry of each slot in the map of
// actions.
func actionsPart(p *ir.Program, slots []uint32) component {
	out := component{constants: map[string]any{}}
	entries := uint32(0)
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Verdict.Answers() {
			out.constants["answers"] = true
		}
		if r.Sample > 0 {
			out.constants["sampling"] = true
		}
		if p.Bans(r) {
			out.constants["reporting"] = true
		}
		if judged(p, r) {
			out.constants["judging"] = true
		}
		if special(p, r) {
			out.constants["specials"] = true
		}
		if special(p, r) || r.Protect > 0 {
			entries = max(entries, slots[i]+1)
		}
	}
	if entries == 0 {
		return out
	}
	shape := image.Shape{ValueSize: uint32(image.ActionSize), Entries: entries}
	out.shapes = map[string]image.Shape{image.Actions: shape}
	out.fill = func(memory map[string][]byte) error {
		all := into(memory, image.Actions, shape)
		for i := range p.Rules {
			if r := &p.Rules[i]; special(p, r) || r.Protect > 0 {
				writeAction(all[image.ActionSize*int(slots[i]):], p, r)
			}
		}
		return nil
	}
	return out
}

// writeAction writes the struct action of a rule.
func writeAction(to []byte, p *ir.Program, r *ir.Rule) {
	a := image.ActionRecord{Slip: r.Slip, Sample: r.Sample, Protection: uint32(r.Protect)}
	if p.Bans(r) {
		a.Report = 1
	}
	image.Put(to, a)
}
