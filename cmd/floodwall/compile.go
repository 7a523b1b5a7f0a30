package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/control"
)

func compileCommand(e *env) *cobra.Command {
	var target string
	c := &cobra.Command{
		Use:   "compile POLICY",
		Short: "print what would be loaded, in readable form",
		Args:  exactly(1, "POLICY, a file"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkTarget(c, target, "xdp"); err != nil {
				return err
			}
			return compilePolicy(c.Context(), e, args[0])
		},
	}
	c.Flags().StringVar(&target, "target", "xdp", "what to compile for: `xdp`")
	complete(c, "target", "xdp")
	e.jsonFlag(c)
	return c
}

// checkTarget sorts out the targets that a command cannot serve.
func checkTarget(c *cobra.Command, target string, known ...string) error {
	for _, k := range known {
		if target == k {
			return nil
		}
	}
	if target == "nftables" || target == "iptables" {
		return &notSupported{what: "target " + target, instead: "use --target xdp"}
	}
	return usagef(c, "the target is xdp", "unknown target %q", target)
}

// complete offers the values of a flag to the shell.
func complete(c *cobra.Command, flag string, values ...string) {
	err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(fmt.Sprintf("completion of --%s: %v", flag, err)) // there is no such flag: a mistake in this program
	}
}

// compileReport is the answer of compile as JSON.
type compileReport struct {
	Target  string        `json:"target"`
	Form    compile.Form  `json:"form"`
	Rules   []compileRule `json:"rules"`
	Listing string        `json:"listing"`
	Notes   []string      `json:"notes"`
}

type compileRule struct {
	Name    string `json:"name"`
	Stage   string `json:"stage"`
	Verdict string `json:"verdict"`
	Line    int    `json:"line,omitempty"`
}

func compilePolicy(ctx context.Context, e *env, file string) error {
	c, err := e.compiled(ctx, file)
	if err != nil {
		return err
	}
	x, err := interruptible(ctx, func() (*compile.XDP, error) { return toXDP(c) })
	if err != nil {
		return err
	}
	if !e.json {
		e.notes(c.Notes)
		e.text(x.Listing())
		return nil
	}
	report := compileReport{
		Target: "xdp", Form: x.Form, Rules: []compileRule{}, Listing: x.Listing(), Notes: append([]string{}, c.Notes...),
	}
	for _, r := range c.Program.Rules {
		report.Rules = append(report.Rules, compileRule{r.Name, "xdp", r.Verdict.String(), r.Line})
	}
	return e.printJSON(report)
}

// toXDP compiles as apply would.
func toXDP(c *control.Compiled) (*compile.XDP, error) {
	x, err := compile.ToXDP(c.Program, compile.XDPOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Policy.File, err)
	}
	return x, nil
}
