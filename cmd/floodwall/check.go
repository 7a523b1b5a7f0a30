// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"math/bits"
	"slices"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/internal/text/wording"
)

func checkCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "check POLICY",
		Short: "read and compile a policy, apply nothing",
		Long: "Check reads and compiles a policy and reports every mistake with its line, column and remedy.\n" +
			"It applies nothing and needs no rights.",
		Example: "  floodwall check policy.yaml",
		Args:    cli.Exactly(1, policyArg),
		RunE:    func(c *cobra.Command, args []string) error { return check(c.Context(), e, args[0]) },
	}
	e.JSONFlag(c)
	return c
}

// checkReport is the output of check as JSON.
type checkReport struct {
	Policy string       `json:"policy"`
	OK     bool         `json:"ok"`
	Late   []lateRule   `json:"late,omitempty"`       // rules that do not run at the first stage, on XDP
	Holds  []leftCheck  `json:"structural,omitempty"` // checks that always apply, and why
	Errors []checkError `json:"errors"`
	Notes  []string     `json:"notes"`
	*checkCounts
}

type lateRule struct {
	Name  string     `json:"name"`
	Stage plan.Stage `json:"stage"`
	Why   string     `json:"why"`
}

type checkError struct {
	Line int    `json:"line"` // 0 when the message contains the line
	Col  int    `json:"col"`
	Msg  string `json:"msg"`
	Hint string `json:"hint,omitempty"`
}

type checkCounts struct {
	Sets     int `json:"sets"`
	Entries  int `json:"entries"`
	Rules    int `json:"rules"`
	Services int `json:"services"`
	Checks   int `json:"checks"`
}

func check(ctx context.Context, e *env, file string) error {
	name := policyName(file)
	var c *control.Compiled
	var o *compile.Output
	_, err := periodic.Within(ctx, func() (_ any, err error) {
		p, err := e.readSound(file)
		c, o, err = control.Check(p, err, feed.InState(e.StateOrDefault()), plan.TargetXDP)
		return nil, err
	})
	if errors.Is(err, context.Canceled) {
		return err
	}
	if e.JSON {
		return checkJSON(e, name, c, o, err)
	}
	if err != nil {
		return err
	}
	e.Notes(slices.Concat(checkNotes(c), control.TranslationNotes(c.Policy, operate.Translations(ctx)), control.PortNotes(c.Policy.DeviceNames(), o.Plan),
		control.SenderNotes(c.Policy, c.Program), control.HostNotes(c.Program, c.Policy.DeviceNames(), plan.TargetXDP)))
	if absent := operate.Absent(c.Policy); absent != nil {
		e.WarnOf(absent)
	}
	n := counts(c)
	e.Println("%s: ok: %s (%s), %s, %s, %s", name, wording.Things(n.Sets, "set", "sets"), wording.Things(n.Entries, "entry", "entries"),
		wording.Things(n.Rules, "rule", "rules"), wording.Things(n.Services, "service", "services"), wording.Things(n.Checks, "check", "checks"))
	if text := addedChecks(c); text != "" {
		e.Println("checks that hold beside those of the policy: %s", text)
	}
	e.late(lateRules(o.Plan))
	return nil
}

// checkNotes returns notes about a policy. The notes cannot depend on the target, because the target is chosen when the policy is applied.
func checkNotes(c *control.Compiled) []string {
	return slices.Concat(c.NotesFor(plan.TargetXDP), plan.ElsewhereNotes(c.Program))
}

// lateRules returns the rules of a plan that do not run at its first stage.
func lateRules(pl *plan.Plan) []lateRule {
	late := []lateRule{}
	for i, place := range pl.Rules {
		if place.Stage != pl.First() {
			late = append(late, lateRule{pl.Program.Rules[i].Name, place.Stage, place.Why})
		}
	}
	return late
}

// late prints the rules that do not run at the first stage. It prints at most 10 of them.
func (e *env) late(rules []lateRule) {
	const most = 10
	for _, r := range rules[:min(len(rules), most)] {
		e.Println("rule %s runs at %s: %s", r.Name, r.Stage, r.Why)
	}
	if more := len(rules) - most; more > 0 {
		e.Println("%s late; `floodwall compile` lists all", wording.Things(more, "more rule runs", "more rules run"))
	}
}

// checkJSON prints the report. If the report contains an error, checkJSON returns ErrFailed, so that no other message follows.
func checkJSON(e *env, file string, c *control.Compiled, o *compile.Output, err error) error {
	report := checkReport{Policy: file, OK: err == nil, Late: []lateRule{}, Errors: []checkError{}, Notes: []string{}}
	if err == nil {
		report.Late, report.Holds = lateRules(o.Plan), structural(c.Program)
		n := counts(c)
		report.checkCounts = &n
		report.Notes = append(report.Notes, checkNotes(c)...)
		if absent := operate.Absent(c.Policy); absent != nil {
			for _, p := range operate.Problems(absent) {
				report.Notes = append(report.Notes, p.String()+": "+p.Hint)
			}
		}
		return e.PrintJSON(report)
	}
	for _, p := range operate.Problems(err) {
		report.Errors = append(report.Errors, checkError{Line: p.Line, Col: p.Col, Msg: p.Text, Hint: p.Hint})
	}
	return errors.Join(e.PrintJSON(report), cli.ErrFailed)
}

// addedChecks explains the checks that apply although the policy does not enable them; "" when there are none.
func addedChecks(c *control.Compiled) string {
	return ir.StructuralText(slices.DeleteFunc(c.Program.Structural(), func(s ir.Structural) bool { return c.Policy.Checks.Has(s.Check) }))
}

// structural returns the checks that apply even if the policy disables them.
func structural(p *ir.Program) (list []leftCheck) {
	for _, s := range p.Structural() {
		list = append(list, leftCheck{s.Check.String(), s.Why})
	}
	return list
}

// counts counts the policy's rules and other elements, and the checks that apply.
func counts(c *control.Compiled) checkCounts {
	n := checkCounts{
		Sets: len(c.Policy.Sets) + len(c.Policy.Names), Rules: len(c.Policy.Rules), Services: len(c.Policy.Services),
		Checks: bits.OnesCount64(uint64(c.Program.Checks)),
	}
	for _, s := range c.Program.Sets {
		if s.Name != "" {
			n.Entries += s.Entries
		}
	}
	for _, s := range c.Program.Names {
		if s.Name != "" {
			n.Entries += len(s.Names)
		}
	}
	return n
}
