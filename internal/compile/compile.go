// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Output is the result of a compilation in readable form.
type Output struct {
	Plan    *plan.Plan
	Form    xdp.Form         // of the XDP program
	Listing string           // of the XDP program, as text; "" if there is none
	Script  string           // for netfilter; "" if netfilter has nothing to do
	Left    []plan.LeftCheck // checks that the target does not make
	Notes   []string         // other differences between the policy and the target's behavior
}

// Compile runs all steps of compiling, in order. A program that Lower and Optimize have made is
//   - adapted to the target, because a target may be unable to answer SYNs (plan.For);
//   - distributed over the target's stages (plan.Hoist);
//   - translated by the code generators: the rules of the XDP stage to an XDP program, all others to a script for netfilter.
//
// An apply runs the same steps. Between them it uses its knowledge of the host.
func Compile(p *ir.Program, t plan.Target, devices []string) (*Output, error) {
	program, notes := plan.For(p, t)
	pl, err := plan.Hoist(program, t)
	if err != nil {
		return nil, err
	}
	o := &Output{Plan: pl, Notes: append(notes, plan.LateNotes(pl)...)}
	if t == plan.TargetIptables {
		return o, o.iptables(devices)
	}
	if t == plan.TargetXDP {
		if err := o.xdp(); err != nil {
			return nil, err
		}
	}
	return o, o.nftables(devices)
}

func (o *Output) xdp() error {
	program, _ := o.Plan.Only()
	x, err := xdp.Generate(program, xdp.Options{})
	if err == nil {
		o.Form, o.Listing = x.Form, x.Listing()
	}
	return err
}

func (o *Output) nftables(devices []string) error {
	n, err := nftables.Generate(o.Plan, nftables.Options{Devices: devices})
	if err == nil && (!n.Empty() || o.Plan.Target == plan.TargetNftables) {
		o.Script, o.Left = n.Script, n.Left
	}
	return err
}

func (o *Output) iptables(devices []string) error {
	x, err := iptables.Generate(o.Plan, iptables.Options{Devices: devices})
	if err == nil {
		o.Script, o.Left = x.Script(), x.Left
	}
	return err
}
