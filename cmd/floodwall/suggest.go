// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// suggestFlags are the flags of suggest.
type suggestFlags struct {
	search     operate.Search
	live       bool
	collateral string
	write      string
	apply      bool
}

func suggestCommand(e *env) *cobra.Command {
	var f suggestFlags
	c := &cobra.Command{
		Use:   "suggest POLICY --attack FILE|--live [--baseline FILE]",
		Short: "find rules against an attack",
		Long: "Suggest prints rules that match most packets of an attack and hardly any legitimate ones. They only count.\n" +
			"The attack is in a capture (pcap or pcapng), or with --live in what comes to the policy's devices now.",
		Example: "  floodwall suggest policy.yaml --attack now.pcap --baseline yesterday.pcap\n" +
			"  floodwall suggest policy.yaml --live --baseline yesterday.pcap --write policy2.yaml --apply",
		Args: cli.Exactly(1, policyArg),
		RunE: func(c *cobra.Command, args []string) error { return e.suggest(c, args[0], &f) },
	}
	c.Flags().StringVar(&f.search.Attack, "attack", "", "capture `file` of the attack; legitimate packets in it do no harm")
	c.Flags().BoolVar(&f.live, "live", false, "look at samples of what comes to the policy's devices now")
	c.Flags().StringArrayVar(&f.search.Baseline, "baseline", nil, "capture `file` of legitimate traffic; may be given several times")
	c.Flags().DurationVar(&f.search.For, "for", 0, "look at this `time` of the attack; by default at all of a capture, and 5s with --live")
	c.Flags().StringVar(&f.collateral, "collateral", "0.1%", "largest `share` of the baseline's packets that all rules together may match")
	c.Flags().StringVar(&f.write, "write", "", "write POLICY with the rules to this new `file` in the same directory")
	c.Flags().BoolVar(&f.apply, "apply", false, "apply what --write has written, on trial for 10m: unless confirmed, the rules are removed again")
	e.JSONFlag(c)
	return c
}

// suggested is the output of suggest as JSON.
type suggested struct {
	*operate.Suggestion
	Written string           `json:"written,omitempty"` // the new policy file
	Applied *control.Applied `json:"applied,omitempty"`
}

func (e *env) suggest(c *cobra.Command, file string, f *suggestFlags) error {
	if err := f.check(c, e, file); err != nil {
		return err
	}
	compiled, err := e.compiled(c.Context(), file)
	if err != nil {
		return err
	}
	if f.live {
		if h, err := e.Host(); err == nil {
			f.search.Live = Samples(c.Context(), h, e.daemonSocket(), compiled.Devices(), cmp.Or(f.search.For, operate.SampleFor))
		}
	}
	s, err := periodic.Within(c.Context(), func() (*operate.Suggestion, error) { return f.search.Suggest(c.Context(), compiled) })
	if err != nil {
		return err
	}
	if !e.JSON {
		if err := e.printSuggestion(s); err != nil {
			return err
		}
	}
	answer := suggested{Suggestion: s}
	if f.write != "" && len(s.Rules) > 0 {
		if err := writeSuggestion(file, f.write, s); err != nil {
			return err
		}
		answer.Written = f.write
	}
	if f.apply && answer.Written != "" {
		if answer.Applied, err = e.applySuggestion(c.Context(), f.write); err != nil {
			return err
		}
	}
	if e.JSON {
		return e.PrintJSON(answer)
	}
	switch {
	case answer.Applied != nil:
		e.Println("# %s is on trial for %s: `floodwall confirm` keeps the rules", f.write, suggestTrial)
	case answer.Written != "":
		e.Println("# written to %s", f.write)
	}
	return nil
}

// suggestTrial is the time after which suggested rules are removed unless they are confirmed.
const suggestTrial = "10m"

// applySuggestion applies a policy on trial, to the target of the running policy.
func (e *env) applySuggestion(ctx context.Context, file string) (*control.Applied, error) {
	h, err := e.Host()
	if err != nil {
		return nil, err
	}
	order := operate.Order{Policy: file, Target: string(control.TargetAuto), Confirm: suggestTrial, Sessions: facts.Sessions()}
	if running, err := h.Instance.Status(ctx); err == nil {
		order.AsRunning(running)
	}
	applied, _, err := h.Apply(ctx, order)
	return applied, err
}

// writeSuggestion adds the suggested rules to the policy in the file from, and writes the result to the new file to.
func writeSuggestion(from, to string, s *operate.Suggestion) (err error) {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	p, err := policy.Parse(from, text)
	if err != nil {
		return err
	}
	today := time.Now().Format(time.DateOnly)
	added, err := suggest.Insert(string(text), p, s.Rules, func(r suggest.Rule) string {
		return fmt.Sprintf("suggested %s: matches %s of the attack%s; remove it afterwards", today, shareText(r.Coverage), harmText(r.Collateral))
	})
	if err != nil {
		return err
	}
	return safefile.Create(to, []byte(added), 0o644)
}

// check returns a usage error for flags that do not fit together.
func (f *suggestFlags) check(c *cobra.Command, e *env, file string) error {
	switch {
	case f.apply && f.write == "":
		return cli.Usagef(c, "name a new file beside POLICY with --write", "flag --apply: there is no policy with the rules to apply")
	case f.write != "" && filepath.Dir(f.write) != filepath.Dir(file):
		return cli.Usagef(c, "name a file beside POLICY", "flag --write: %s is in another directory, from which the files that POLICY names are not found", f.write)
	case f.write != "" && file == stdinWord:
		return cli.Usagef(c, "name the file of the policy", "flag --write: a policy from standard input has no file to write beside")
	case f.live && f.search.Attack != "":
		return cli.Usagef(c, "take one of the two", "flags --live and --attack: the attack comes from one of them")
	case (f.live || f.apply) && !cli.Privileged():
		return &cli.PrivilegeError{CommandLine: e.CommandLine}
	case f.search.Attack == "" && !f.live:
		return cli.Usagef(c, "name a capture of the attack, as `tcpdump -i eth0 -w now.pcap` writes it, or look at what comes now with --live",
			"flag --attack is missing")
	case f.search.For < cli.Least[time.Duration](c, "for"):
		return cli.Usagef(c, cli.HelpHint(c), "flag --for: must be positive, got %v", f.search.For)
	}
	number, ok := strings.CutSuffix(f.collateral, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !ok || !(percent >= 0 && percent <= 100) {
		return cli.Usagef(c, "write it as in --collateral 0.1%", "flag --collateral: want a percentage, got %q", f.collateral)
	}
	f.search.Collateral = percent / 100
	return nil
}

// printSuggestion prints the rules in the notation of a policy, with their effects as comments.
func (e *env) printSuggestion(s *operate.Suggestion) error {
	e.Println("# attack: %s", sourceText(s.Attack))
	for _, d := range s.Dropped {
		e.Println("# %s of them: %s drops them already", wording.Count(d.Packets), d.Name)
	}
	if s.Collateral == nil {
		e.Println("# no baseline: nothing is known of what the rules do to legitimate packets")
	} else {
		e.Println("# baseline: %s", sourceText(s.Baseline))
	}
	if err := s.None(); err != nil {
		return err
	}
	for _, r := range s.Rules {
		e.Println("")
		e.Println("  # matches %s of the attack%s", shareText(r.Coverage), harmText(r.Collateral))
		if r.Unlike != "" {
			e.Println("  # the baseline has no packet %s: it says nothing of what this rule harms", r.Unlike)
		}
		if r.SYNs {
			e.Println("  # it matches SYNs, and those of clients can be the same: `syn: protect` of the service tells them apart")
		}
		if r.Before != "" {
			e.Println("  # must stand before rule %s, which passes its packets now", r.Before)
		}
		e.Println("  - %s", r.Text)
	}
	e.Println("")
	e.Println("# together: %s of the attack%s", shareText(s.Coverage), harmText(s.Collateral))
	e.Println("# next: add them under rules, apply, look at their counts with `floodwall status`, then remove observe: true")
	return nil
}

// sourceText describes the origin of the packets: the capture files, or the devices and the time.
func sourceText(s operate.Source) string {
	from, about := strings.Join(s.Files, ", "), ""
	if s.Devices != nil {
		from = fmt.Sprintf("%.1f s at %s", s.Seconds, strings.Join(s.Devices, ", "))
		if s.Looked < s.Packets {
			about = "about "
		}
	}
	text := fmt.Sprintf("%s%s in %s", about, wording.Things(s.Packets, "packet", "packets"), from)
	if s.Looked < s.Packets {
		text += fmt.Sprintf(", of which %s were looked at", wording.Count(s.Looked))
	}
	return text
}

// shareText returns a share in percent with its confidence interval.
func shareText(s suggest.Share) string {
	return fmt.Sprintf("%s (%s to %s)", percentText(s.Part()), percentText(s.Low), percentText(s.High))
}

func harmText(s *suggest.Harm) string {
	if s == nil {
		return ""
	}
	from := ""
	if s.Senders > 0 {
		from = fmt.Sprintf(", from %s of %s", wording.Count(s.Senders), wording.Things(s.OfSenders, "sender", "senders"))
	}
	return fmt.Sprintf(", and %s of the baseline's %s%s (at most %s of all such traffic)", wording.Count(s.Packets), wording.Things(s.Of, "packet", "packets"),
		from, percentText(s.High))
}

// percentText returns a share in percent. A small share has more digits.
func percentText(part float64) string {
	digits := 1
	for limit := 0.01; part > 0 && part < limit && digits < 4; limit /= 10 {
		digits++
	}
	return strconv.FormatFloat(100*part, 'f', digits, 64) + "%"
}
