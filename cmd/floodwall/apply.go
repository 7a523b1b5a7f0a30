// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// applyFlags are the flags of apply.
type applyFlags struct {
	target, mode string
	devices      []string
	confirm      string
	trial        time.Duration // parsed from confirm
	dryRun       bool
	force        bool
	boot         bool
	later        bool // with boot: the units are enabled after the confirmation
	restore      bool // apply the policy that was saved for boot
}

func applyCommand(e *env) *cobra.Command {
	var f applyFlags
	c := &cobra.Command{
		Use:        "apply POLICY",
		SuggestFor: []string{"reload", "restart"},
		Short:      "put a policy in force on all devices, or change nothing",
		Long: "Apply loads a policy into the kernel, whole or not at all, on the best target that this host has: XDP, nftables or iptables.\n" +
			"With --confirm the kernel returns to the previous policy unless `floodwall confirm` comes in time.",
		Example: "  floodwall apply policy.yaml --confirm 60s    # then log in from another terminal, and if that works\n  floodwall confirm",
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(c); err != nil {
				return err
			}
			if f.restore {
				return restore(c.Context(), e)
			}
			_, err := apply(c.Context(), e, args[0], f)
			return err
		},
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if f.restore {
			return cli.None(c, args)
		}
		return cli.Exactly(1, policyArg)(c, args)
	}
	flags := c.Flags()
	flags.StringVar(&f.target, "target", "auto", "`target` of the policy: auto, xdp, nftables or iptables")
	flags.StringArrayVar(&f.devices, "device", nil, "`device` in place of those of the policy; repeat it for more")
	flags.StringVar(&f.mode, "mode", "", "`mode` of the devices: auto (for each device the best that works there: native, else tc), native (XDP in the driver), tc (behind the driver: any device, beside other programs) or generic (XDP behind the driver, at several times the cost); without it as the last --mode said, auto at first")
	flags.StringVar(&f.confirm, "confirm", "", "return to the previous policy after this `time`, as 60s or 5m, unless confirmed")
	flags.BoolVar(&f.dryRun, "dry-run", false, "do everything except attach")
	flags.BoolVar(&f.force, "force", false, "apply even what would cut this SSH session")
	flags.BoolVar(&f.boot, "boot", false, "after each reboot, have systemd load the policy that was confirmed last")
	flags.BoolVar(&f.restore, "boot-restore", false, "apply what was saved by --boot; for the systemd unit")
	flags.MarkHidden("boot-restore")
	complete(c, "target", targets(true)...)
	complete(c, "mode", "auto", "native", "tc", "generic")
	complete(c, "device", deviceNames()...)
	e.JSONFlag(c)
	return c
}

// targets are the values of --target.
func targets(auto bool) []string {
	list := []string{string(plan.TargetXDP), string(plan.TargetNftables), string(plan.TargetIptables)}
	if auto {
		return append([]string{string(control.TargetAuto)}, list...)
	}
	return list
}

func deviceNames() (names []string) {
	devices, _ := net.Interfaces()
	for _, d := range devices {
		names = append(names, d.Name)
	}
	return names
}

func (f *applyFlags) check(c *cobra.Command) (err error) {
	if f.trial, err = trialTime(c, f.confirm); err != nil {
		return err
	}
	modes := []datapath.Mode{datapath.Auto, datapath.Native, datapath.TC, datapath.Generic}
	if c.Flags().Changed("mode") && !slices.Contains(modes, datapath.Mode(f.mode)) {
		return cli.Usagef(c, "the modes are auto, native, tc and generic", "unknown mode %q", f.mode)
	}
	for i, d := range f.devices {
		if d == "" || slices.Contains(f.devices[:i], d) {
			return cli.Usagef(c, "name each device once", "--device %q is empty or twice there", d)
		}
	}
	if f.boot && f.dryRun {
		return cli.Usagef(c, "leave one of them out", "--boot changes what a dry run must not")
	}
	return checkTarget(c, f.target, targets(true))
}

// trialTime parses --confirm. It returns 0 when the flag is not given.
func trialTime(c *cobra.Command, text string) (time.Duration, error) {
	if !c.Flags().Changed("confirm") {
		return 0, nil
	}
	d, err := operate.Order{Confirm: cmp.Or(text, "none")}.Trial()
	if err != nil {
		return 0, cli.Usagef(c, "write it as 60s, 5m or 1h", "--confirm %q is not a time from 2s to 24h", text)
	}
	return d, nil
}

// apply applies a policy, and prints the result. It returns an error together with the result if the policy is applied but a later step has failed.
func apply(ctx context.Context, e *env, file string, f applyFlags) (*control.Applied, error) {
	h, err := e.Host()
	if err != nil {
		return nil, err
	}
	var text []byte
	if file == stdinWord {
		if text, err = periodic.Within(ctx, e.inputPolicy); err != nil {
			return nil, err
		}
	}
	applied, p, err := h.Apply(ctx, operate.Order{
		Policy: policyName(file), Text: text, Target: f.target, Mode: f.mode, Devices: f.devices, Confirm: f.confirm, DryRun: f.dryRun, Force: f.force,
		Boot: f.boot, Later: f.later, Sessions: facts.Sessions(),
	})
	if applied == nil {
		return nil, err
	}
	if e.JSON {
		return applied, firstError(err, e.PrintJSON(applied))
	}
	e.Notes(applied.Notes)
	e.Println("%s", appliedLine(applied, p, f))
	if f.trial > 0 && !f.dryRun {
		e.Println("%s", trialLine(applied))
	}
	return applied, err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// appliedLine is the message after an apply.
func appliedLine(a *control.Applied, p *policy.Policy, f applyFlags) string {
	what := fmt.Sprintf("applied generation %d on %s", a.Generation, devicesText(a))
	if f.dryRun {
		devices := f.devices
		if devices == nil {
			devices = p.DeviceNames()
		}
		what = fmt.Sprintf("dry run: would apply on %s (%s)", strings.Join(devices, ", "), a.Target)
	}
	line := fmt.Sprintf("%s: %s, %s", what, wording.Things(a.Rules, "rule", "rules"), wording.Things(a.Entries, "entry", "entries"))
	if later := stagesText(a); later != "" {
		line += ", " + later
	}
	if a.Bans > 0 {
		line += ", " + wording.Things(a.Bans, "ban", "bans") + " kept"
	}
	return fmt.Sprintf("%s, in %.2f s", line, a.Seconds)
}

// stagesText says how many rules run after the first stage.
func stagesText(a *control.Applied) string {
	var texts []string
	first := a.Target.Stages()[0]
	for _, s := range []plan.Stage{plan.StageIngress, plan.StageRaw, plan.StageFilter} {
		if n := a.Stages[s]; n > 0 && s != first {
			texts = append(texts, fmt.Sprintf("%d at %s", n, s))
		}
	}
	return strings.Join(texts, ", ")
}

// trialLine says how to confirm a policy on trial.
func trialLine(a *control.Applied) string {
	back := fmt.Sprintf("generation %d returns", a.Returns)
	if a.Returns == 0 {
		back = "nothing is filtered any more"
	}
	return fmt.Sprintf("on trial: %s in %.0f s unless `floodwall confirm` comes before", back, a.Confirm)
}

// devicesText lists devices with their stages and modes.
func devicesText(a *control.Applied) string {
	var texts []string
	for _, d := range a.Devices {
		how := string(a.Target)
		if d.Mode != "" {
			how += ", " + string(d.Mode)
		}
		texts = append(texts, fmt.Sprintf("%s (%s)", d.Name, how))
	}
	return strings.Join(texts, ", ")
}
