// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/text/wording"
)

func attacksCommand(e *env) *cobra.Command {
	var html bool
	c := &cobra.Command{
		Use:   "attacks [ID]",
		Short: "attacks that the daemon has seen, and the report of one",
		Long: "Attacks lists what `detect` of the policy has the daemon see, the latest first. With an ID it prints the report of that attack:\n" +
			"when it was and how large, the kinds of its packets, its sources, what was dropped by what, what passed, and suggested rules.",
		Example: "  floodwall attacks\n" +
			"  floodwall attacks 20260102-150405 --html > report.html",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef(c, "name one, or none for the list", "want at most 1 argument, ID, got %d", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return e.attacks(c, args, html) },
	}
	c.Flags().BoolVar(&html, "html", false, "print the report as one HTML page")
	e.JSONFlag(c)
	return c
}

func (e *env) attacks(c *cobra.Command, args []string, html bool) error {
	if html && (len(args) == 0 || e.JSON) {
		return cli.Usagef(c, "write floodwall attacks ID --html", "flag --html: it is for the report of one attack")
	}
	store, err := e.attackStore()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		list, err := store.List()
		if err != nil {
			return err
		}
		if e.JSON {
			return e.PrintJSON(list)
		}
		e.printAttacks(store, list)
		return nil
	}
	r, err := store.Report(args[0])
	switch {
	case errors.Is(err, attack.ErrUnknown):
		return wording.WithHint(fmt.Errorf("attack %q: %w", args[0], err), "`floodwall attacks` lists those that are known")
	case err != nil:
		return err
	case html:
		return r.WriteHTML(e.Stdout)
	case e.JSON:
		return e.PrintJSON(r)
	}
	e.printAttack(r)
	return nil
}

// attackStore returns the reports of the instance that the flags name.
func (e *env) attackStore() (attack.Store, error) {
	state, err := e.State()
	return attack.InState(state, e.BPFFS, datapath.DefaultDir), err
}

func (e *env) printAttacks(store attack.Store, list []attack.Summary) {
	if len(list) == 0 {
		looks := "The daemon looks for attacks while it runs (floodwall.service) and the policy in force has the line `detect: {baseline: learn}`"
		if l, err := store.Learning(); err == nil && l != nil {
			looks = "The daemon looks for attacks"
		}
		e.Println("no attack is known; `floodwall top` shows what comes now. %s", looks)
		return
	}
	t := wording.NewTable("id", "lasted", ">peak packets/s", ">peak bits/s", ">dropped", ">passed", "at", "kinds")
	for _, a := range list {
		t.Row(a.ID, a.Lasted(), wording.Rate(a.Peak.Packets), wording.Rate(a.Peak.Bits), wording.Count(int(a.Dropped.Packets)), wording.Count(int(a.Passed.Packets)), strings.Join(a.At, ", "), strings.Join(a.Vectors, ", "))
	}
	e.Table(t)
}

// sayAttacks names the attacks that go on, and what detection still has to learn. It says nothing if no daemon looks for attacks.
func (e *env) sayAttacks() {
	store, err := e.attackStore()
	if err != nil {
		return
	}
	l, err := store.Learning()
	if err != nil || l == nil {
		return
	}
	list, _ := store.List() // an error is of `floodwall attacks`
	for _, a := range list {
		if a.Ended == nil {
			e.Println("attack at %s, for %s: %s, at most %s packets/s; `floodwall attacks %s` shows more",
				strings.Join(a.At, ", "), wording.Span(time.Since(a.Started)), cmp.Or(strings.Join(a.Vectors, ", "), "of no known kind yet"), wording.Rate(a.Peak.Packets), a.ID)
		}
	}
	if l.Text() != "" {
		e.Println("detect: %s", l.Text())
	}
}

func (e *env) printAttack(r *attack.Report) {
	state := "it goes on"
	if r.Ended != nil {
		state = fmt.Sprintf("it ended %s", r.Ended.Local().Format(time.DateTime))
	}
	e.Println("%s", r.Headline())
	e.Println("began %s, %s, after %s", r.Started.Local().Format(time.DateTime), state, r.Lasted())
	e.Println("%s", wording.Printable(fmt.Sprintf("%s, generation %d, %s on %s", r.Policy, r.Generation, r.Target, strings.Join(r.Devices, ", "))))
	if text := r.PlacesText(func(t time.Time) string { return t.Local().Format(time.TimeOnly) }); text != "" {
		e.Println("mode: %s", text)
	}
	e.Println("usual are %s packets/s; above %s %s it is an attack", wording.Rate(r.Usual), wording.Rate(r.Bound), r.Place())
	e.Println("dropped %s packets, %s bytes", wording.Count(int(r.Dropped.Packets)), wording.Count(int(r.Dropped.Bytes)))
	e.Println("passed %s packets, %s bytes, legitimate ones included", wording.Count(int(r.Passed.Packets)), wording.Count(int(r.Passed.Bytes)))
	e.printAttackFacts(r)
	if r.Note != "" {
		e.Println("note: %s", r.Note)
	}
	kinds := wording.NewTable("kind of packets", ">share", ">error")
	for _, v := range r.Vectors {
		kinds.Row(v.Name, fmt.Sprintf("%.1f%%", 100*v.Share), fmt.Sprintf("±%.0f%%", min(v.Error, 100)))
	}
	reasons := wording.NewTable("rule, check or default", "verdict", "stage", ">packets", ">bytes")
	for _, d := range r.Reasons {
		reasons.Row(d.Name, d.Verdict, d.Stage, wording.Count(int(d.Packets)), wording.Count(int(d.Bytes)))
	}
	outcomes := wording.NewTable("of protected services", "verdict", "stage", ">packets", ">bytes")
	for _, d := range r.Outcomes {
		outcomes.Row(d.Name, d.Verdict, d.Stage, wording.Count(int(d.Packets)), wording.Count(int(d.Bytes)))
	}
	for _, t := range []*wording.Table{kinds, reasons, outcomes} {
		if t.Len() > 0 {
			e.Println("")
			e.Table(t)
		}
	}
	if r.Samples != nil {
		for _, part := range SampleParts(&operate.Top{Samples: r.Samples})[:2] {
			e.Println("")
			e.Text(strings.Join(part.Lines(), "\n") + "\n")
		}
	}
	e.printSteps(r)
	e.printSuggested(r.Suggestion)
}

// printAttackFacts prints the target of an attack, the facts behind its verdict, the times of the actions, and the remedies.
func (e *env) printAttackFacts(r *attack.Report) {
	for _, p := range r.Parts {
		e.Println("%s: %s", p.Verdict, p.Text())
	}
	if t := r.Times.Text(); t != "" {
		e.Println("after its first packet: %s", t)
	}
	if r.NoRule != "" {
		e.Println("no rule is added: %s", r.NoRule)
	}
	for _, a := range r.Advice {
		e.Println("advice: %s", a)
	}
}

// printSteps prints the changes of automatic rules during an attack.
func (e *env) printSteps(r *attack.Report) {
	if len(r.Steps) > 0 {
		e.Println("")
	}
	for _, s := range r.Steps {
		e.Println("%s %s %s: %s", s.Time.Local().Format(time.TimeOnly), s.Rule, s.Did, s.Why)
		if s.Text != "" && s.Did != attack.Removed {
			e.Println("  - %s", s.Text)
		}
	}
}

// printSuggested prints rules in the notation of a policy.
func (e *env) printSuggested(s *attack.Suggestion) {
	if s == nil {
		return
	}
	e.Println("")
	e.Println("# suggested, found %s: take the rules out again by %s", s.Found.Local().Format(time.DateTime), s.Expires.Local().Format(time.DateTime))
	if s.Baseline == 0 {
		e.Println("# no legitimate traffic is known: look at each rule")
	}
	for _, r := range s.Rules {
		e.Println("  # matches %s of what passes%s", shareText(r.Coverage), harmText(r.Collateral))
		e.Println("  - %s", r.Text)
	}
}
