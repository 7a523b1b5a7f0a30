package control

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/compile"
)

// Output is what a policy is compiled to, in readable form.
type Output struct {
	Plan    *compile.Plan
	Form    compile.Form   // of the XDP program
	Listing string         // of the XDP program; "" without
	Script  string         // for netfilter; "" when there is nothing for it to do
	Left    []compile.Left // checks that the target does not do
	Notes   []string       // on what else it does otherwise
}

// Output compiles for a target as Apply would.
func (c *Compiled) Output(t compile.Target) (*Output, error) {
	plan, err := c.Plan(t)
	if err != nil {
		return nil, err
	}
	o := &Output{Plan: plan}
	_, o.Notes = compile.For(c.Program, t)
	if t == compile.TargetXDP {
		program, _ := plan.Only()
		x, err := compile.ToXDP(program, compile.XDPOptions{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Policy.File, err)
		}
		o.Form, o.Listing = x.Form, x.Listing()
	}
	if err := c.script(o, t); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Policy.File, err)
	}
	return o, nil
}

// script compiles what is for netfilter.
func (c *Compiled) script(o *Output, t compile.Target) error {
	if t == compile.TargetIptables {
		x, err := compile.ToIptables(o.Plan, compile.IptOptions{Devices: c.Devices()})
		if err == nil {
			o.Script, o.Left = x.Script(), x.Left
		}
		return err
	}
	n, err := compile.ToNftables(o.Plan, compile.NftOptions{Devices: c.Devices()})
	if err == nil && (!n.Empty() || t == compile.TargetNftables) {
		o.Script, o.Left = n.Script, n.Left
	}
	return err
}
