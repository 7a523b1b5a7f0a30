package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/suggest"
)

// suggestFlags are the flags of suggest.
type suggestFlags struct {
	attack     string
	baseline   []string
	first      time.Duration
	collateral string
}

func suggestCommand(e *env) *cobra.Command {
	var f suggestFlags
	c := &cobra.Command{
		Use:   "suggest POLICY --attack FILE [--baseline FILE]",
		Short: "find rules against an attack",
		Long: "Suggest finds rules that match most packets of an attack and hardly any legitimate ones, and prints them in the policy's language.\n" +
			"Both come from captures, pcap or pcapng. Each rule has `observe: true`: it counts what it would drop. Suggest changes nothing.",
		Example: "  floodwall suggest policy.yaml --attack now.pcap --baseline yesterday.pcap",
		Args:    exactly(1, "POLICY, a file"),
		RunE:    func(c *cobra.Command, args []string) error { return e.suggest(c, args[0], &f) },
	}
	c.Flags().StringVar(&f.attack, "attack", "", "capture `file` of the traffic of now; legitimate packets in it do no harm")
	c.Flags().StringArrayVar(&f.baseline, "baseline", nil, "capture `file` of legitimate traffic; may be given several times")
	c.Flags().DurationVar(&f.first, "for", 0, "look at this `time` of the attack from its start, as 5s; by default at all of it")
	c.Flags().StringVar(&f.collateral, "collateral", "0.1%", "the most of the baseline's packets that all rules together may match")
	e.jsonFlag(c)
	return c
}

// suggestion is the answer of suggest as JSON.
type suggestion struct {
	Policy   string `json:"policy"`
	Attack   source `json:"attack"`
	Baseline source `json:"baseline"`
	*suggest.Result
}

// source is where samples are from.
type source struct {
	Files   []string `json:"files"`
	Packets int      `json:"packets"` // of IP
	Looked  int      `json:"looked"`  // at so many, drawn at random
	Seconds float64  `json:"seconds"`

	samples []suggest.Sample
}

func (e *env) suggest(c *cobra.Command, file string, f *suggestFlags) error {
	collateral, err := f.check(c)
	if err != nil {
		return err
	}
	compiled, err := e.compiled(c.Context(), file)
	if err != nil {
		return err
	}
	s, err := interruptible(c.Context(), func() (*suggestion, error) { return f.find(file, compiled, collateral) })
	if errors.Is(err, context.Canceled) {
		return err
	}
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(s)
	}
	return e.printSuggestion(s)
}

// check reads the flags.
func (f *suggestFlags) check(c *cobra.Command) (collateral float64, err error) {
	switch {
	case f.attack == "":
		return 0, usagef(c, "name a capture of the attack, as `tcpdump -i eth0 -w now.pcap` writes it", "flag --attack is missing")
	case f.first < least[time.Duration](c, "for"):
		return 0, usagef(c, helpHint(c), "flag --for: must be positive, got %v", f.first)
	}
	number, ok := strings.CutSuffix(f.collateral, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !ok || !(percent >= 0 && percent <= 100) {
		return 0, usagef(c, "write it as in --collateral 0.1%", "flag --collateral: want a percentage, got %q", f.collateral)
	}
	return percent / 100, nil
}

// find reads the captures and finds rules.
func (f *suggestFlags) find(file string, c *control.Compiled, collateral float64) (*suggestion, error) {
	s := &suggestion{Policy: file, Attack: source{Files: []string{f.attack}}, Baseline: source{Files: f.baseline}}
	if err := s.Attack.read(suggest.MostAttack, f.first); err != nil {
		return nil, err
	}
	if err := s.Baseline.read(suggest.MostGood, 0); err != nil {
		return nil, err
	}
	var err error
	s.Result, err = suggest.Find(suggest.Input{
		Program: c.Program, Taken: ruleNames(c), Attack: s.Attack.samples, Good: s.Baseline.samples, Collateral: collateral,
	})
	return s, err
}

// read reads the packets of all files, at most so many together.
func (s *source) read(most int, span time.Duration) error {
	s.Files = append([]string{}, s.Files...)
	for _, file := range s.Files {
		samples, took, packets, err := suggest.ReadFile(file, most/len(s.Files), span)
		if err != nil {
			return err
		}
		if packets == 0 {
			return fmt.Errorf("%s: there is no IP packet in it", file)
		}
		s.Packets += packets
		s.Seconds += took.Seconds()
		s.samples = append(s.samples, samples...)
	}
	s.Looked = len(s.samples)
	return nil
}

// ruleNames are the names of rules and services.
func ruleNames(c *control.Compiled) map[string]bool {
	taken := map[string]bool{}
	for _, r := range c.Policy.Rules {
		taken[r.Name] = true
	}
	for _, s := range c.Policy.Services {
		taken[s.Name] = true
	}
	return taken
}

// errNoRule says that no rule was found.
type errNoRule struct{ why, remedy string }

func (e *errNoRule) Error() string { return "suggest: " + e.why }

// Hint is the remedy.
func (e *errNoRule) Hint() string { return e.remedy }

// printSuggestion prints the rules as they stand in a policy, with what they do as comments.
func (e *env) printSuggestion(s *suggestion) error {
	e.println("# attack: %s", s.Attack)
	for _, d := range s.Dropped {
		e.println("# %s of them: %s drops them already", count(d.Packets), d.Name)
	}
	if s.Collateral == nil {
		e.println("# no baseline: nothing is known of what the rules do to legitimate packets")
	} else {
		e.println("# baseline: %s", s.Baseline)
	}
	if len(s.Rules) == 0 {
		return s.none()
	}
	for _, r := range s.Rules {
		e.println("")
		e.println("  # matches %s of the attack%s", shareText(r.Coverage), harmText(r.Collateral))
		if r.Before != "" {
			e.println("  # must stand before rule %s, which passes its packets now", r.Before)
		}
		e.println("  - %s", r.Text)
	}
	e.println("")
	e.println("# together: %s of the attack%s", shareText(s.Coverage), harmText(s.Collateral))
	e.println("# next: add them under rules, apply, look at their counts with `floodwall status`, then remove observe: true")
	return nil
}

// none explains that there is no rule.
func (s *suggestion) none() error {
	dropped := s.Attack.Looked - s.Passed
	switch {
	case s.Passed == 0:
		return &errNoRule{"the policy drops all packets of the attack already", "`floodwall apply` it, if it is not in force"}
	case dropped > s.Passed:
		part := percentText(float64(dropped) / float64(s.Attack.Looked))
		return &errNoRule{"the policy drops " + part + " of the attack already, and no rule matches enough of the others",
			"`floodwall apply` it, if it is not in force"}
	}
	return &errNoRule{"no rule matches enough of the attack without the baseline's packets",
		"give a capture with more of the attack in it, or accept more with --collateral"}
}

func (s source) String() string {
	text := fmt.Sprintf("%s in %s", things(s.Packets, "packet", "packets"), strings.Join(s.Files, ", "))
	if s.Looked < s.Packets {
		text += fmt.Sprintf(", of which %s were looked at", count(s.Looked))
	}
	return text
}

// shareText is a share in percent with its interval.
func shareText(s suggest.Share) string {
	return fmt.Sprintf("%s (%s to %s)", percentText(s.Part()), percentText(s.Low), percentText(s.High))
}

func harmText(s *suggest.Share) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(", and %s of the baseline's %s (at most %s of all such traffic)", count(s.Packets), things(s.Of, "packet", "packets"),
		percentText(s.High))
}

// percentText writes a share in percent, small ones with more digits.
func percentText(part float64) string {
	digits := 1
	for limit := 0.01; part > 0 && part < limit && digits < 4; limit /= 10 {
		digits++
	}
	return strconv.FormatFloat(100*part, 'f', digits, 64) + "%"
}
