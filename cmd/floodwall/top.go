package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/operate"
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
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error { return e.top(c, &f) },
	}
	c.Flags().BoolVar(&f.once, "once", false, "print one table, and end")
	c.Flags().DurationVar(&f.every, "every", 2*time.Second, "the `time` over which rates are taken")
	e.jsonFlag(c)
	return c
}

func (e *env) top(c *cobra.Command, f *topFlags) error {
	const shortest = 100 * time.Millisecond
	if f.every < shortest {
		return usagef(c, "write it as in --every 2s", "flag --every: want at least %v, got %v", shortest, f.every)
	}
	h, err := e.host()
	if err != nil {
		return err
	}
	if !f.once && !e.json && isTerminal(e.stdout) {
		return e.topScreen(c.Context(), h, f.every)
	}
	next, end, err := e.watchTop(c.Context(), h, f.every)
	if err != nil {
		return err
	}
	t, err := next(c.Context(), f.every)
	if err = errors.Join(err, end()); err != nil {
		return err
	}
	if e.json {
		return e.printJSON(t)
	}
	e.printTop(t)
	return nil
}

func (e *env) printTop(t *operate.Top) {
	if t.Warning != "" {
		e.warning(t.Warning)
	}
	for _, line := range topHead(t) {
		e.println("%s", line)
	}
	for _, part := range append([]topPart{reasonsPart(t)}, samplesParts(t)...) {
		e.println("")
		for _, line := range part.lines() {
			e.println("%s", line)
		}
	}
}
