package control

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/policy"
)

// Compiled is a policy file that was read and lowered without a mistake.
type Compiled struct {
	Policy  *policy.Policy
	Program *ir.Program // optimized
	Notes   []string    // for the operator: what is legal and probably not meant

	mu    sync.Mutex
	plans plans

	listOwn sync.Once
	own     []netip.Addr // the host's addresses
}

type plans map[compile.Target]*compile.Plan

// Compile reads a policy file and the list files it names. It touches no kernel.
func Compile(file string) (*Compiled, error) {
	p, err := policy.Read(file)
	if err != nil {
		return nil, err
	}
	return CompilePolicy(p)
}

// CompileSource compiles the text of a policy; file is its name in messages, and where relative list files are.
func CompileSource(file string, text []byte) (*Compiled, error) {
	p, err := policy.Parse(file, text)
	if err != nil {
		return nil, err
	}
	return CompilePolicy(p)
}

// CompilePolicy compiles a policy that was read, with the list files it names.
func CompilePolicy(p *policy.Policy) (*Compiled, error) { return compilePolicy(p, settled(p, onHost)) }

// compilePolicy compiles a policy as it was settled.
func compilePolicy(written, p *policy.Policy) (*Compiled, error) {
	c := &Compiled{Policy: written, plans: plans{}}
	for _, n := range p.Notes {
		c.Notes = append(c.Notes, fmt.Sprintf("%s:%d:%d: %s", p.File, n.Pos.Line, n.Pos.Col, n.Msg))
	}
	program, notes, err := compile.Lower(p)
	if err != nil {
		return nil, err
	}
	optimized, more := compile.Optimize(program)
	c.Program = optimized
	c.Notes = slices.Concat(c.Notes, notes, more)
	return c, nil
}

// with is the same policy with another program.
func (c *Compiled) with(p *ir.Program) *Compiled {
	if p == c.Program {
		return c
	}
	return &Compiled{Policy: c.Policy, Program: p, Notes: c.Notes, plans: plans{}}
}

// NotesFor are Notes, and what there is to say of the policy on a target.
func (c *Compiled) NotesFor(t compile.Target) []string {
	return slices.Concat(c.Notes, compile.LimitNotes(c.Program, t), compile.PlacementNotes(c.Program, t))
}

// Plan finds the stage of each rule on a target, once. Its program is that of the policy as the target has it.
func (c *Compiled) Plan(t compile.Target) (*compile.Plan, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pl, ok := c.plans[t]; ok {
		return pl, nil
	}
	program, _ := compile.For(c.Program, t)
	pl, err := compile.Hoist(program, t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Policy.File, err)
	}
	c.plans[t] = pl
	return pl, nil
}

// Devices are the names of the policy's devices.
func (c *Compiled) Devices() []string {
	var names []string
	for _, d := range c.Policy.Devices {
		names = append(names, d.Name)
	}
	return names
}
