package control

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/codegen/iptables"
	netfiltergen "github.com/floodwall/floodwall/internal/codegen/netfilter"
	"github.com/floodwall/floodwall/internal/codegen/nftables"
	xdpgen "github.com/floodwall/floodwall/internal/codegen/xdp"
	"github.com/floodwall/floodwall/internal/plan"
)

// Output is what a policy is compiled to, in readable form.
type Output struct {
	Plan    *plan.Plan
	Form    xdpgen.Form         // of the XDP program
	Listing string              // of the XDP program; "" without
	Script  string              // for netfilter; "" when there is nothing for it to do
	Left    []netfiltergen.Left // checks that the target does not do
	Notes   []string            // on what else it does otherwise
}

// Output compiles for a target as Apply would.
func (c *Compiled) Output(t plan.Target) (*Output, error) {
	pl, err := c.Plan(t)
	if err != nil {
		return nil, err
	}
	o := &Output{Plan: pl}
	_, o.Notes = plan.For(c.Program, t)
	if t == plan.TargetXDP {
		program, _ := pl.Only()
		x, err := xdpgen.Generate(program, xdpgen.Options{})
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
func (c *Compiled) script(o *Output, t plan.Target) error {
	if t == plan.TargetIptables {
		x, err := iptables.Generate(o.Plan, iptables.Options{Devices: c.Devices()})
		if err == nil {
			o.Script, o.Left = x.Script(), x.Left
		}
		return err
	}
	n, err := nftables.Generate(o.Plan, nftables.Options{Devices: c.Devices()})
	if err == nil && (!n.Empty() || t == plan.TargetNftables) {
		o.Script, o.Left = n.Script, n.Left
	}
	return err
}
