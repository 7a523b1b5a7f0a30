// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/lab"
)

// Guard describes the things that are installed at a site, in the language of their tool. The zero value installs nothing.
type Guard struct {
	Sysctls  map[string]string    // of the server
	Program  string               // attached by XDP: a program of package lab (PassAll and the like) or of bpf/bench.c
	TC       string               // attached at tc: PassTC or DropTC
	Nft      string               // for nft -f; {in} stands for the name of the site's device
	Ipset    *List                // restored as the set of MatchListed
	Iptables string               // for iptables-restore
	Form     string               // of iptables; "": the legacy one
	Policy   string               // of Floodwall, without the devices
	Options  control.ApplyOptions // of the policy: its target and mode
}

// Floodwall returns a policy at a place, see TargetOptions.
func Floodwall(target, policy string) Guard {
	return Guard{Policy: policy, Options: TargetOptions(target)}
}

// Guard installs a guard at a site. The guard exists until the builder or the lab is closed.
func (b *Builder) Guard(ctx context.Context, at *Site, g Guard) error {
	for name, value := range g.Sysctls {
		if err := at.Server.Sysctl(name, value); err != nil {
			return err
		}
	}
	var steps []func() error
	add := func(is bool, do func() error) {
		if is {
			steps = append(steps, do)
		}
	}
	add(g.Program != "", func() error { return b.attach(at, g.Program) })
	add(g.TC != "", func() error { return attachTC(at, g.TC) })
	add(g.Nft != "", func() error { return installNft(ctx, at, g.Nft) })
	add(g.Ipset != nil, func() error {
		_, err := RestoreIpset(ctx, at, g.Ipset)
		return err
	})
	add(g.Iptables != "", func() error {
		_, _, err := RunTool(ctx, at.Server, strings.NewReader(g.Iptables), cmp.Or(g.Form, IptablesLegacy)+"-restore")
		return err
	})
	add(g.Policy != "", func() error {
		_, err := b.Hold(ctx, at, g.Policy, g.Options)
		return err
	})
	for _, do := range steps {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// installNft runs a script with nft.
func installNft(ctx context.Context, at *Site, script string) error {
	_, _, err := RunTool(ctx, at.Server, strings.NewReader(strings.ReplaceAll(script, "{in}", at.In.Name)), "nft", "-f", "-")
	if err != nil && strings.Contains(script, "flowtable") && strings.Contains(err.Error(), "No such file or directory") {
		return &Missing{Reason: "this kernel has no flow tables (CONFIG_NF_FLOW_TABLE)"}
	}
	return err
}

// onXDP reports whether the guard is a policy whose program runs at XDP.
func (g *Guard) onXDP() bool {
	return g.Options.Target == plan.TargetXDP && g.Options.Mode != datapath.TC
}

// AddGuarded adds a row for a guard, if the row is wanted. For a policy on XDP it measures only the program, which must drop packets for the
// reasons in drops. Any other guard gets a site of its own.
func (b *Builder) AddGuarded(ctx context.Context, r *Row, g Guard, drops map[string]string) error {
	if !b.Wants(r.Name) && r != b.Table.Base && r != b.Table.Rival {
		return nil
	}
	if g.onXDP() {
		b.Steps.Show("applying %s", r.Label)
		a, err := b.XDP.Apply(ctx, g.Policy, Expect(drops))
		if err != nil {
			return fmt.Errorf("%s: %w", r.Label, err)
		}
		r.Subject = Subject{Site: b.XDP, Program: b.Own(a.Program)}
		b.Add(r)
		return nil
	}
	at, err := b.NewSite()
	if err != nil {
		return err
	}
	if r.Missing, err = b.SetUp(r.Label, func() error { return b.Guard(ctx, at, g) }); err == nil {
		r.Subject.Site = at
		b.Add(r)
	}
	return err
}

// attach attaches an XDP program by its name.
func (b *Builder) attach(at *Site, name string) error {
	switch name {
	case lab.TxAll, lab.DropAll, lab.PassAll:
		_, err := b.Lab.NewSink(at.In, name)
		return err
	}
	p, err := LoadPeerProgram(name)
	if err == nil {
		_, err = b.Lab.Attach(at.In, b.Own(p))
	}
	return err
}

// Programs at tc that do not look at the packet.
const (
	PassTC = "tc_pass"
	DropTC = "tc_drop"
)

// The return values of programs at tc: enum tcx_action_base of linux/bpf.h.
const (
	TCNext = -1
	TCDrop = 2
)

// attachTC attaches PassTC or DropTC.
func attachTC(at *Site, name string) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, report.Choice[int32](name == DropTC, TCDrop, TCNext)), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("program at tc: %w", err)
	}
	defer p.Close()
	err = at.Lab.AttachTC(at.In, p)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return &Missing{Reason: "this kernel has no TCX (Linux 6.6)"}
	}
	return err
}
