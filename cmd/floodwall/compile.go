// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

func compileCommand(e *env) *cobra.Command {
	var target string
	c := &cobra.Command{
		Use:   "compile POLICY",
		Short: "print what would be loaded, in readable form",
		Long: "Compile prints what would be loaded: the bytecode of XDP, the script of nft, or the input of iptables-restore and ipset.\n" +
			"It applies nothing.",
		Example: "  floodwall compile policy.yaml --target nftables",
		Args:    cli.Exactly(1, policyArg),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkTarget(c, target, targets(false)); err != nil {
				return err
			}
			return compilePolicy(c.Context(), e, args[0], plan.Target(target))
		},
	}
	c.Flags().StringVar(&target, "target", "xdp", "`target` to compile for: xdp, nftables or iptables")
	complete(c, "target", targets(false)...)
	e.JSONFlag(c)
	return c
}

// checkTarget returns a usage error for an unknown target.
func checkTarget(c *cobra.Command, target string, known []string) error {
	if slices.Contains(known, target) {
		return nil
	}
	return cli.Usagef(c, "the targets are "+strings.Join(known, ", "), "unknown target %q", target)
}

// complete registers the values of a flag for shell completion.
func complete(c *cobra.Command, flag string, values ...string) {
	err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(fmt.Sprintf("completion of --%s: %v", flag, err)) // the flag does not exist: a bug in this program
	}
}

// compileReport is the output of compile as JSON.
type compileReport struct {
	Target  plan.Target   `json:"target"`
	Form    xdpgen.Form   `json:"form,omitempty"`
	Rules   []compileRule `json:"rules"`
	Default compileRule   `json:"default"`
	Listing string        `json:"listing,omitempty"`    // of the XDP program
	Script  string        `json:"script,omitempty"`     // for nft, or for ipset and iptables
	Holds   []leftCheck   `json:"structural,omitempty"` // checks that always apply, and why
	Left    []leftCheck   `json:"left"`                 // checks that this target lacks
	Costs   []stageCost   `json:"costs,omitempty"`      // by the host's cost model
	Notes   []string      `json:"notes"`
}

type compileRule struct {
	Name    string     `json:"name"`
	Stage   plan.Stage `json:"stage"`
	Why     string     `json:"why"`
	Verdict string     `json:"verdict"`
	Line    int        `json:"line,omitempty"`
	Protect bool       `json:"protect,omitempty"` // packets that the rule passes go through a protection
}

type leftCheck struct {
	Check string `json:"check"`
	Why   string `json:"why"`
}

func compilePolicy(ctx context.Context, e *env, file string, target plan.Target) error {
	c, err := e.compiled(ctx, file)
	if err != nil {
		return err
	}
	o, err := periodic.Within(ctx, func() (*compile.Output, error) { return c.Output(target) })
	if err != nil {
		return err
	}
	costs := stageCosts(e.costs(), target)
	if e.JSON {
		report := newCompileReport(c, o)
		report.Costs = costs
		return e.PrintJSON(report)
	}
	e.Notes(c.NotesFor(target))
	e.Notes(o.Notes)
	e.Text(costText(costs) + placements(o.Plan.Program, o))
	if o.Listing != "" {
		e.Text(o.Listing)
	}
	if o.Script != "" {
		e.Text("\n" + o.Script)
	}
	return nil
}

func newCompileReport(c *control.Compiled, o *compile.Output) compileReport {
	report := compileReport{
		Target: o.Plan.Target, Form: o.Form, Rules: []compileRule{}, Listing: o.Listing, Script: o.Script,
		Holds: structural(o.Plan.Program), Left: []leftCheck{}, Notes: slices.Concat([]string{}, c.NotesFor(o.Plan.Target), o.Notes),
		Default: compileRule{"default", o.Plan.Default.Stage, o.Plan.Default.Why, o.Plan.Program.Default.String(), 0, false},
	}
	for i, r := range o.Plan.Program.Rules {
		place := o.Plan.Rules[i]
		report.Rules = append(report.Rules, compileRule{r.Name, place.Stage, place.Why, r.Verdict.String(), r.Line, r.Protect > 0})
	}
	for _, l := range o.Left {
		report.Left = append(report.Left, leftCheck{l.Check.String(), l.Why})
	}
	return report
}

// placements returns the stage of each rule, and the reason for that stage, as comments that all netfilter tools ignore.
func placements(p *ir.Program, o *compile.Output) string {
	var b strings.Builder
	for i, r := range p.Rules {
		does := r.Verdict.String()
		if r.Protect > 0 {
			does += " and protect"
		}
		fmt.Fprintf(&b, "# rule %s: %s, at %s: %s\n", r.Name, does, o.Plan.Rules[i].Stages(), o.Plan.Rules[i].Why)
	}
	fmt.Fprintf(&b, "# default: %s, at %s: %s\n", p.Default, o.Plan.Default.Stages(), o.Plan.Default.Why)
	for _, s := range p.Structural() {
		fmt.Fprintf(&b, "# check %s: holds whatever the policy says: %s\n", s.Check, s.Why)
	}
	for _, l := range o.Left {
		fmt.Fprintf(&b, "# check %s: not done by %s: %s\n", l.Check, o.Plan.Target, l.Why)
	}
	return b.String() + "\n"
}
