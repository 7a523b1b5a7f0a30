package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/datapath"
)

// applyFlags are the flags of apply.
type applyFlags struct {
	target, mode string
	devices      []string
	dryRun       bool
	force        bool
}

func applyCommand(e *env) *cobra.Command {
	var f applyFlags
	c := &cobra.Command{
		Use:   "apply POLICY",
		Short: "make a policy the one that runs: all of it, or nothing changes",
		Args:  exactly(1, "POLICY, a file"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(c); err != nil {
				return err
			}
			return apply(c.Context(), e, args[0], f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.target, "target", "auto", "what the policy is compiled `to`: auto or xdp")
	flags.StringArrayVar(&f.devices, "device", nil, "`device` in place of those of the policy; repeat it for more")
	flags.StringVar(&f.mode, "mode", "auto", "`where` a device runs it: auto, native (in the driver) or generic (anywhere, at several times the cost)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "do all but attach")
	flags.BoolVar(&f.force, "force", false, "apply even what would cut this SSH session")
	flags.Duration("confirm", 0, "return to the policy before after this `time`, unless confirmed (not supported yet)")
	complete(c, "target", "auto", "xdp")
	complete(c, "mode", "auto", "native", "generic")
	complete(c, "device", deviceNames()...)
	e.jsonFlag(c)
	return c
}

func deviceNames() (names []string) {
	devices, _ := net.Interfaces()
	for _, d := range devices {
		names = append(names, d.Name)
	}
	return names
}

func (f *applyFlags) check(c *cobra.Command) error {
	if c.Flags().Changed("confirm") {
		return &notSupported{what: "--confirm", instead: "`floodwall test` and `apply --dry-run` try a policy before it runs"}
	}
	modes := []datapath.Mode{datapath.Auto, datapath.Native, datapath.Generic}
	if !slices.Contains(modes, datapath.Mode(f.mode)) {
		return usagef(c, "the modes are auto, native and generic", "unknown mode %q", f.mode)
	}
	for i, d := range f.devices {
		if d == "" || slices.Contains(f.devices[:i], d) {
			return usagef(c, "name each device once", "--device %q is empty or twice there", d)
		}
	}
	return checkTarget(c, f.target, "auto", "xdp")
}

func apply(ctx context.Context, e *env, file string, f applyFlags) error {
	start := time.Now()
	in, err := e.instance()
	if err != nil {
		return err
	}
	c, err := e.compiled(ctx, file)
	if err != nil {
		return err
	}
	options := control.ApplyOptions{Devices: f.devices, Mode: datapath.Mode(f.mode), DryRun: f.dryRun}
	if !f.force {
		options.Sessions = control.Sessions()
	}
	applied, err := in.Apply(ctx, c, options)
	if err != nil {
		return err
	}
	applied.Seconds = time.Since(start).Seconds()
	if e.json {
		return e.printJSON(applied)
	}
	e.notes(applied.Notes)
	e.println("%s", appliedLine(applied, c, f))
	return nil
}

// appliedLine says what was done.
func appliedLine(a *control.Applied, c *control.Compiled, f applyFlags) string {
	what := fmt.Sprintf("applied generation %d on %s", a.Generation, devicesText(a.Devices))
	if f.dryRun {
		devices := f.devices
		if devices == nil {
			devices = c.Devices()
		}
		what = fmt.Sprintf("dry run: would apply on %s (xdp)", strings.Join(devices, ", "))
	}
	line := fmt.Sprintf("%s: %s, %s", what, things(a.Rules, "rule", "rules"), things(a.Entries, "entry", "entries"))
	if a.Bans > 0 {
		line += ", " + things(a.Bans, "ban", "bans") + " kept"
	}
	return fmt.Sprintf("%s, in %.2f s", line, a.Seconds)
}

// devicesText lists devices with their stage and mode.
func devicesText(devices []*datapath.Device) string {
	var texts []string
	for _, d := range devices {
		texts = append(texts, fmt.Sprintf("%s (xdp, %s)", d.Name, d.Mode))
	}
	return strings.Join(texts, ", ")
}
