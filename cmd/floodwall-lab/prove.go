// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// proveFlags are the flags of prove.
type proveFlags struct {
	target  string
	loaded  bool
	limit   time.Duration
	mutants int
	frames  string
}

func proveCommand(e *env) *cobra.Command {
	var f proveFlags
	c := &cobra.Command{
		Use:   "prove POLICY",
		Short: "prove that the generated code decides as the policy's IR says, for every frame",
		Long: "Prove asks z3 for a frame, of any content, that the generated code of the XDP program decides otherwise than the policy says, as the compiler's\n" +
			"intermediate representation (IR) has it, and prints it. It proves each kind of usual frames, that the entry decides no other frame, the rules that general() asks, and the tables of addresses.\n\n" +
			"With --target nftables it proves the ruleset instead, as the kernel has taken it in a network namespace of its own: verdict and counter of each packet.",
		Example: "  floodwall-lab prove policy.yaml\n  floodwall-lab prove policy.yaml --loaded\n  floodwall-lab prove policy.yaml --target nftables\n" +
			"  floodwall-lab prove policy.yaml --mutants 100\n  floodwall-lab prove policy.yaml --frames attack.pcap",
		Args: cli.Exactly(1, "POLICY, a file"),
		RunE: func(c *cobra.Command, args []string) error { return e.prove(c, args[0], &f) },
	}
	c.Flags().StringVar(&f.target, "target", string(plan.TargetXDP), "`target` whose code is proved: xdp, or nftables (as root)")
	c.Flags().BoolVar(&f.loaded, "loaded", false, "load the program, and prove the instructions and the tables that the kernel hands out (as root)")
	c.Flags().DurationVar(&f.limit, "limit", time.Minute, "`time` of a CPU that z3 may take for each part")
	c.Flags().IntVar(&f.mutants, "mutants", 0, "make so many `mistakes` in the entry, and in the code of the rules, instead, and say how many are found")
	c.Flags().StringVar(&f.frames, "frames", "", "say also how many packets of a `file` in pcap or pcapng format are of those frames")
	e.JSONFlag(c)
	return c
}

func (e *env) prove(c *cobra.Command, file string, f *proveFlags) error {
	if f.limit < time.Second || f.limit > time.Hour {
		return cli.Usagef(c, "a minute is enough for 200 rules", "flag --limit: must be 1s to 1h, got %v", f.limit)
	}
	if f.target != string(plan.TargetXDP) && f.target != string(plan.TargetNftables) {
		return cli.Usagef(c, "write xdp or nftables", "flag --target: want xdp or nftables, got %q", f.target)
	}
	if f.loaded && f.target != string(plan.TargetXDP) {
		return cli.Usagef(c, "leave it out: a ruleset is always read back from the kernel", "flag --loaded: is for the target xdp")
	}
	if f.frames != "" && f.target != string(plan.TargetXDP) {
		return cli.Usagef(c, "leave it out: a ruleset decides all packets that it gets", "flag --frames: is for the target xdp")
	}
	if f.mutants < 0 || f.mutants > 0 && f.loaded {
		return cli.Usagef(c, "write a number, and not --loaded", "flag --mutants: must be positive and without --loaded, got %d", f.mutants)
	}
	text, err := policy.Source(file)
	if err != nil {
		return err
	}
	p, err := policy.Parse(file, text)
	if err != nil {
		return err
	}
	compiled, err := control.Compile(p, feed.InState(e.StateOrDefault()))
	if err != nil {
		return err
	}
	pl, err := compiled.Plan(plan.Target(f.target))
	if err != nil {
		return err
	}
	if (f.loaded || f.target == string(plan.TargetNftables)) && !cli.Privileged() {
		return &cli.PrivilegeError{CommandLine: e.CommandLine}
	}
	program, _ := pl.Only()
	subject, err := provable(c.Context(), pl, compiled.Devices(), f)
	if err != nil {
		return err
	}
	shares, err := sharesOf(subject, f.frames)
	if err != nil {
		return err
	}
	l := smt.Limits{Time: f.limit}
	if f.mutants > 0 {
		return e.mutants(c, subject, l, f.mutants)
	}
	r, err := subject.Prove(c.Context(), l, func(r prove.Result) {
		fmt.Fprintf(e.Stderr, "%s: %s, %s of a CPU\n", r.Kind, r.Answer, r.CPU.Round(time.Millisecond))
	})
	if err != nil {
		return err
	}
	r.Policy, r.Shares = file, shares
	if f.loaded {
		r.Replay(program)
	}
	if e.JSON {
		err = e.PrintJSON(r)
	} else {
		e.printProof(r)
	}
	if err == nil && !r.Proved() {
		return cli.ErrFailed
	}
	return err
}

// prover is code that can be proved, and in which faults can be injected.
type prover interface {
	Prove(ctx context.Context, l smt.Limits, progress func(prove.Result)) (*prove.Report, error)
	Mutants(ctx context.Context, l smt.Limits, n int, r *rand.Rand) (map[string]*prove.MutantCounts, []string, error)
}

// provable returns the code to prove for a plan: the XDP program, or the ruleset for netfilter.
func provable(ctx context.Context, pl *plan.Plan, devices []string, f *proveFlags) (prover, error) {
	if pl.Target == plan.TargetNftables {
		return prove.CompileNetfilter(ctx, pl, devices)
	}
	program, _ := pl.Only()
	return prove.Compile(program, f.loaded)
}

// printProof prints the results as a table with a row for each part of the proof.
func (e *env) printProof(r *prove.Report) {
	t := wording.NewTable("FRAMES", "DECIDED HERE", "ANSWER", ">CPU", "")
	for i := range r.Parts {
		p := &r.Parts[i]
		decided := "no"
		if p.Decided {
			decided = "yes"
		}
		t.Row(p.Kind, decided, p.Answer.String(), (p.CPU).Round(time.Millisecond).String(), p.Why)
	}
	e.Table(t)
	for i := range r.Parts {
		switch p := &r.Parts[i]; {
		case p.Frame != nil:
			e.printFrame(r.Policy, p)
		case p.State != nil: // a part about rules has a state, but no frame
			e.Println("packet   %s", strings.Join(p.State, " "))
		}
	}
	e.printShares(r.Shares)
	if r.Target == string(plan.TargetNftables) {
		e.Println("sets: %d ranges of addresses compared, each as the policy's sets say", r.LookedUp)
	} else {
		e.Println("tables: %d classes of addresses, %d ranges looked up, each as its sets say", r.Classes, r.LookedUp)
	}
	for _, left := range r.LeftOut {
		e.Println("not proved: %s", left)
	}
	if r.Proved() {
		what := "every frame that the entry decides, and every packet of which general() asks the rules, gets the verdict and the reason of the policy's IR"
		switch {
		case r.Target == string(plan.TargetNftables):
			what = "every packet of these kinds gets the verdict of the policy's IR, and is counted once, where the IR says"
		case !r.ProvesRules():
			what = "every frame that the entry decides gets the verdict and the reason of the policy's IR"
		}
		e.Println("proved: %s (%d rules, %s)", what, r.Rules, (r.Time).Round(time.Millisecond).String())
		return
	}
	e.Println("not proved: %d of %d parts; %d with a counterexample, %d given up", len(r.Parts)-r.Count(smt.Unsatisfiable), len(r.Parts),
		r.Count(smt.Satisfiable), r.Count(smt.Unknown))
}

// sharesOf counts the packets in a capture file that the generated entry decides. It returns nil without a file name, and when p is not an XDP program.
func sharesOf(p prover, name string) ([]prove.Share, error) {
	s, ofXDP := p.(*prove.Subject)
	if name == "" || !ofXDP {
		return nil, nil
	}
	in, err := sample.OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	for shares := s.Shares(); ; {
		p, err := in.Read()
		if errors.Is(err, io.EOF) {
			return shares.List(), nil
		}
		if err == nil { // bytes that were not captured count as zeros
			err = shares.Add(append(p.Frame, make([]byte, min(max(0, p.Length-len(p.Frame)), longestFrame))...))
		}
		if err != nil {
			return nil, err
		}
	}
}

// longestFrame is the maximum number of zeros that are appended to a packet for the bytes that were not captured.
const longestFrame = 1 << 16

// printShares prints the number of packets in a capture file that the generated entry decides.
func (e *env) printShares(list []prove.Share) {
	if list == nil {
		return
	}
	all, decided, handed := 0, 0, 0
	t := wording.NewTable("PACKETS", ">SEEN", ">DECIDED HERE", ">TO A PROTECTION")
	for _, s := range list {
		t.Row(s.Kind, fmt.Sprint(s.Frames), fmt.Sprint(s.Decided), fmt.Sprint(s.Handed))
		all, decided, handed = all+s.Frames, decided+s.Decided, handed+s.Handed
	}
	e.Table(t)
	share := func(n int) float64 { return 100 * float64(n) / float64(all) }
	e.Println("packets: %.2f%% of %d are decided by what is proved, and %.2f%% are handed to protections, which are not proved; the others are general()'s",
		share(decided), all, share(handed))
}

// printFrame prints a frame for which the code and the policy disagree. It uses the notation of the command explain.
func (e *env) printFrame(file string, p *prove.Result) {
	shown := bytes.TrimRight(p.Frame, "\x00")
	e.Println("frame    %s and %d bytes of zeros", hex.EncodeToString(shown), len(p.Frame)-len(shown))
	if text, ok := prove.Notation(p.Frame); ok {
		e.Println("ask      floodwall explain %s '%s'", file, text)
	}
	if len(p.State) > 0 {
		e.Println("where    %v", p.State)
	}
	if p.Replayed != "" {
		e.Println("replayed %s", p.Replayed)
	}
}

// mutants prints whether the proof finds faults that were injected into the code deliberately.
func (e *env) mutants(c *cobra.Command, s prover, l smt.Limits, n int) error {
	counts, gaveUp, err := s.Mutants(c.Context(), l, n, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		return err
	}
	if xdp, ok := s.(*prove.Subject); ok {
		rules, _, more, err := xdp.MutantsOfRules(c.Context(), l, n, rand.New(rand.NewPCG(1, 2)))
		if err != nil {
			return err
		}
		gaveUp = append(gaveUp, more...)
		for class, m := range rules {
			if counts[class] == nil {
				counts[class] = &prove.MutantCounts{}
			}
			counts[class].Add(m)
		}
	}
	if e.JSON {
		return e.PrintJSON(counts)
	}
	t := wording.NewTable("MISTAKE", ">MADE", ">FOUND", ">HARMLESS", ">GIVEN UP")
	var classes []string
	for class := range counts {
		classes = append(classes, class)
	}
	slices.Sort(classes)
	for _, class := range classes {
		m := counts[class]
		t.Row(class, fmt.Sprint(m.Made), fmt.Sprint(m.Caught), fmt.Sprint(m.Equivalent), fmt.Sprint(m.GaveUp))
	}
	e.Table(t)
	for _, text := range gaveUp {
		e.Println("given up: %s", text)
	}
	if len(gaveUp) > 0 {
		return cli.ErrFailed
	}
	return nil
}
