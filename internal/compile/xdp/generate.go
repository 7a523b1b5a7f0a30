// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Form is the structure of the generated code of the rules.
type Form string

// The forms. Both decide packets in the same way. The number of rules determines which one costs less.
const (
	Straight Form = "straight" // one rule after the other
	Tables   Form = "tables"   // bit vectors with a bit for each rule; the value of each field selects the rules that can still match
)

// Options are the parameters of a program that the loader sets.
type Options struct {
	Slots       []uint32       // the counter slot of each rule; nil: slots are numbered from image.SlotRules on
	GuardSlots  []uint32       // the slot of each guard for responses above its limit; nil: slots are numbered after those of the rules
	Protect     []ir.Handshake // the parameters of each protection that the loader has determined; nil: the usual ones, with slots after all others
	Form        Form           // "": the form with the lower cost
	QuestionKey uint64         // the key that a question to the loaded program must contain; 0: the program answers no questions
}

// Program is a program compiled for XDP.
type Program struct {
	image.Image
	Form    Form
	Cost    float64     // the estimated cost of the rules, in nanoseconds, for a packet that matches none
	Dynamic map[int]int // maps the index of each dynamic set in ir.Program to its number in the map of dynamic sets
}

// component is the contribution of one part of the compiler to an image.
type component struct {
	constants map[string]any
	shapes    map[string]image.Shape
	fill      func(memory map[string][]byte) error
}

// into returns the memory of a map that a component fills. If no rule that uses the map can match, the program does not have the map. Then into
// returns memory of that size that is not used.
func into(memory map[string][]byte, name string, shape image.Shape) []byte {
	if m := memory[name]; m != nil {
		return m
	}
	return make([]byte, shape.Size())
}

// Generate compiles a program for XDP. The result decides every packet as p.Eval does. If XDP cannot run a rule, Generate returns an error.
func Generate(p *ir.Program, o Options) (*Program, error) {
	pl := plan.Plan{Target: plan.TargetXDP, Program: p}
	for i := range p.Rules {
		if key, why := pl.Unfit(&p.Rules[i], plan.StageXDP); key != "" {
			return nil, &plan.StageError{
				File: p.File, Rule: p.Rules[i].Name, Line: p.Rules[i].Line, Col: p.Rules[i].Col, Key: key, Cause: why, Remedy: "it belongs to a later stage",
			}
		}
	}
	if p.Default > ir.Drop {
		return nil, fmt.Errorf("default %s: XDP can only pass or drop by default", p.Default)
	}
	p = repliesLast(sourcesLast(p))
	if o.Slots == nil {
		o.Slots = numbered(image.SlotRules, len(p.Rules))
	}
	if o.GuardSlots == nil {
		o.GuardSlots = numbered(slotsUsed(o.Slots), len(p.Guards))
	}
	if o.Protect == nil {
		next := slotsUsed(slices.Concat(o.Slots, o.GuardSlots))
		for i := range p.Protections {
			o.Protect = append(o.Protect, ir.UsualHandshake(&p.Protections[i], next+uint32(i)*uint32(ir.NumOutcomes)))
		}
	}
	out := &Program{Dynamic: dynamicNumbers(p)}
	a, err := compileAddresses(p, out.Dynamic)
	if err != nil {
		return nil, err
	}
	conditions, err := compileConditions(p, o.Slots)
	if err != nil {
		return nil, err
	}
	decisions := decisions(p, o.Slots)
	code, rules, err := chooseForm(p, a, conditions, decisions, o, out)
	if err != nil {
		return nil, err
	}
	guards, egress, err := guardsPart(p, o.GuardSlots)
	if err != nil {
		return nil, err
	}
	protections, ingress, err := protectPart(p, o.Protect)
	if err != nil {
		return nil, err
	}
	floods, err := floodPart(p)
	if err != nil {
		return nil, err
	}
	out.Decide, out.Egress, out.Ingress = code, egress || notesFlows(p) || p.SamplesLeaving, ingress
	out.Slots = slotsUsed(slices.Concat(o.Slots, o.GuardSlots, outcomeSlots(o.Protect)))
	first := entryPart(p, a, conditions.limits, decisions, o, out)
	out.assemble(append(conditions.parts(), a.part(), dynamicPart(p, out.Dynamic), rules, guards, protections, flowsPart(p), floods, samplesPart(p), first, general(p, o))...)
	return out, nil
}

// numbered returns n numbers from first on.
func numbered(first uint32, n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = first + uint32(i)
	}
	return list
}

// slotsUsed returns the number of slots. slots must contain the largest one.
func slotsUsed(slots []uint32) uint32 {
	n := uint32(image.SlotRules)
	for _, slot := range slots {
		n = max(n, slot+1)
	}
	return n
}

// chooseForm compiles the rules in the form with the lower estimated cost.
func chooseForm(
	p *ir.Program, a *addresses, c *conditions, decisions []uint32, o Options, out *Program,
) (asm.Instructions, component, error) {
	straight := &straight{program: p, addrs: a, conditions: c, decisions: decisions}
	tables := newTables(p, a, c, decisions)
	out.Form = o.Form
	if out.Form == "" {
		out.Form = Tables
		if straight.possible() && straight.cost() <= tables.cost() {
			out.Form = Straight
		}
	}
	if out.Form == Straight {
		if !straight.possible() {
			return nil, component{}, fmt.Errorf("%d rules with %d address expressions do not fit straight code", len(p.Rules), len(a.exprs))
		}
		out.Cost = straight.cost()
		return straight.code(), straight.part(), nil
	}
	out.Cost = tables.cost()
	if err := tables.build(); err != nil {
		return nil, component{}, err
	}
	return tables.code(), tables.part(), nil
}

// decisions returns the result of the generated code for each rule.
func decisions(p *ir.Program, slots []uint32) []uint32 {
	list := make([]uint32, len(p.Rules))
	for i, r := range p.Rules {
		list[i] = image.Decision(slots[i], uint8(r.Verdict))
		if special(p, &r) {
			list[i] |= image.Special
		}
		if r.Protect > 0 {
			list[i] |= image.Protected
		}
	}
	return list
}

// special reports whether packets of a rule need an action in addition to the verdict.
func special(p *ir.Program, r *ir.Rule) bool { return r.Sample > 0 || r.Slip > 1 || p.Bans(r) }

// assemble merges components into the image of the program.
func (x *Program) assemble(parts ...component) {
	x.Constants = map[string]any{}
	x.Shapes = map[string]image.Shape{}
	for _, p := range parts {
		maps.Copy(x.Constants, p.constants)
		maps.Copy(x.Shapes, p.shapes)
	}
	x.Fill = func(memory map[string][]byte) error {
		for _, p := range parts {
			if p.fill == nil {
				continue
			}
			if err := p.fill(memory); err != nil {
				return err
			}
		}
		return nil
	}
}

// general returns the component with data that depends on neither addresses nor rules.
func general(p *ir.Program, o Options) component {
	return component{constants: map[string]any{
		"enabled_checks":   uint64(p.Checks),
		"observed_checks":  uint64(p.Observed),
		"default_decision": image.Decision(image.SlotDefault, uint8(p.Default)),
		"question_key":     o.QuestionKey,
	}}
}

// trafficShare returns the initial number of packets in 2^32 that are sampled as traffic; 0 for none.
func trafficShare(p *ir.Program) uint32 {
	if p.SampleTraffic == 0 {
		return 0
	}
	return image.Share(p.SampleTraffic)
}

// samplesPart returns the component with the share of the traffic that is sampled.
func samplesPart(p *ir.Program) component {
	if p.SampleTraffic == 0 {
		return component{}
	}
	shape := image.Shape{ValueSize: 8, Entries: 1}
	return component{
		constants: map[string]any{"samples_traffic": true, "samples_adapt": p.SamplesAdapt, "samples_leaving": p.SamplesLeaving},
		shapes:    map[string]image.Shape{image.TrafficShares: shape},
		fill: func(memory map[string][]byte) error {
			to := into(memory, image.TrafficShares, shape)
			for at := range 2 {
				binary.NativeEndian.PutUint32(to[4*at:], trafficShare(p))
			}
			return nil
		},
	}
}

// dynamicNumbers returns the number of each dynamic set, by its index in the program. The numbers follow the order of the program.
func dynamicNumbers(p *ir.Program) map[int]int {
	numbers := map[int]int{}
	for i, s := range p.Sets {
		if s.Dynamic != nil {
			numbers[i] = len(numbers)
		}
	}
	return numbers
}

// localSet returns the bit of the set of the host's own addresses. It returns 0 if the program has no such set.
func localSet(p *ir.Program, numbers map[int]int) uint32 {
	for set, number := range numbers {
		if p.Sets[set].Dynamic.Local {
			return 1 << number
		}
	}
	return 0
}
