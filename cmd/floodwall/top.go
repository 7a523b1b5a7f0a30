// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/operate"
)

// topFlags are the flags of top.
type topFlags struct {
	once  bool
	every time.Duration
}

func topCommand(e *env) *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use:   "top",
		Short: "what comes now, and what the policy does with it",
		Long: "Top shows the rates of rules and checks, and who sends most of what XDP passes, by samples;\n" +
			"with `sample` of `daemon` in the policy, also who is dropped. On a terminal it is a screen with keys, otherwise it prints once.",
		Example: "  floodwall top\n" +
			"  floodwall top --once --every 5s --json",
		Args: cli.None,
		RunE: func(c *cobra.Command, _ []string) error { return e.top(c, &f) },
	}
	c.Flags().BoolVar(&f.once, "once", false, "print one table, and end")
	c.Flags().DurationVar(&f.every, "every", 2*time.Second, "the `time` over which rates are taken")
	e.JSONFlag(c)
	return c
}

func (e *env) top(c *cobra.Command, f *topFlags) error {
	const shortest = 100 * time.Millisecond
	if f.every < shortest {
		return cli.Usagef(c, "write it as in --every 2s", "flag --every: want at least %v, got %v", shortest, f.every)
	}
	h, err := e.Host()
	if err != nil {
		return err
	}
	if !f.once && !e.JSON && cli.IsTerminal(e.Stdout) {
		return e.topScreen(c.Context(), h, f.every)
	}
	next, end, err := WatchTop(c.Context(), h, e.daemonSocket(), f.every)
	if err != nil {
		return err
	}
	t, err := next(c.Context(), f.every)
	if err = errors.Join(err, end()); err != nil {
		return err
	}
	if e.JSON {
		return e.PrintJSON(t)
	}
	e.printTop(t)
	return nil
}

// topScreen shows top on the terminal until a key ends it.
func (e *env) topScreen(ctx context.Context, h operate.Host, every time.Duration) error {
	next, end, err := WatchTop(ctx, h, e.daemonSocket(), every)
	if err != nil {
		return err
	}
	read := func(ctx context.Context) (*operate.Top, error) { return next(ctx, every) }
	return firstError(ShowTop(ctx, e.Stdin, e.Stdout, read), end())
}

func (e *env) printTop(t *operate.Top) {
	if t.Warning != "" {
		e.Warning(t.Warning)
	}
	for _, line := range Head(t) {
		e.Println("%s", line)
	}
	for _, part := range append([]Part{Reasons(t)}, SampleParts(t)...) {
		e.Println("")
		for _, line := range part.Lines() {
			e.Println("%s", line)
		}
	}
}
