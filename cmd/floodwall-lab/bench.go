// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/experiment"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	options  experiment.Options
	out      string
	rows     string
	markdown bool
	strict   bool

	calibrate bool
}

func benchCommand(e *env) *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:     "bench [all | EXPERIMENT...]",
		Short:   "measure what dropping packets costs on this machine",
		Long:    benchLong(),
		Example: "  floodwall-lab bench all\n  floodwall-lab bench drop --quick\n  floodwall-lab bench sets --list blocked.txt",
		Args:    knownExperiments,
		RunE:    func(c *cobra.Command, args []string) error { return e.bench(c, args, &f) },
	}
	c.ValidArgs = []string{"all"}
	for _, x := range experiment.Experiments {
		c.ValidArgs = append(c.ValidArgs, x.Name)
	}
	flags := c.Flags()
	flags.IntVar(&f.options.Rounds, "rounds", 0, "`number` of measurements of each row, in turn with the others (default 5, with --quick 2)")
	flags.StringVar(&f.rows, "rows", "", "`regexp`: of all but placement and blocklist, only the rows whose names match it, as floodwall/rules=20")
	flags.DurationVar(&f.options.Window, "window", 0, "`time` of one measurement (default 500ms, with --quick 100ms)")
	flags.DurationVar(&f.options.Phase, "for", 0, "`time` of the requests of one measurement of conntrack and dns, two of udp, and five of synproxy (default 10s, with --quick 3s)")
	flags.BoolVar(&f.options.Quick, "quick", false, "short and small: whether it works, not how fast it is")
	flags.BoolVar(&f.options.All, "all", false, "also what takes minutes: the slow tools with 10 million addresses")
	flags.IntSliceVar(&f.options.Sizes, "size", nil, "`numbers` of random addresses for sets, exchange and blocklist, in place of their own")
	flags.StringVar(&f.options.List, "list", "", "`file` of addresses for sets, exchange and blocklist, in place of random ones")
	flags.IntVar(&f.options.Routes, "routes", 0, "`number` of routes of the router of placement (default 925525)")
	flags.Uint64Var(&f.options.Seed, "seed", 1, "`number` that all that detect sends follows from")
	flags.StringVar(&f.options.Captures, "captures", os.Getenv("FLOODWALL_TRACES"), "`directory` of captures of real attacks, for detect (default that of FLOODWALL_TRACES)")
	flags.StringVar(&f.options.Bpfilter, "bpfilter", os.Getenv("BPFILTER"), "`directory` of bpfilter's source with its benchmark built, to run beside, for program (default that of BPFILTER)")
	flags.StringVar(&f.out, "out", "", "`directory` for report.html, tables.md, report.json and bench.txt (default bench/TIME in the state directory)")
	flags.BoolVar(&f.markdown, "markdown", false, "print the tables in Markdown")
	flags.BoolVar(&f.strict, "strict", false, "exit with 1 when a bar is missed")
	flags.BoolVar(&f.calibrate, "calibrate", false, "in place of experiments: measure this host's costs, by which rules are placed")
	e.JSONFlag(c)
	c.AddCommand(benchCompareCommand(e), benchGuardCommand(e), benchHistoryCommand(e), benchFleetCommand(e))
	return c
}

// benchLong returns the long help text of bench, with a list of the experiments.
func benchLong() string {
	var b strings.Builder
	b.WriteString("Bench measures the cost of filtering on this machine, with real packets in network namespaces of its own.\n" +
		"--calibrate measures the costs by which `apply` and `daemon` place rules.\n\nexperiments:\n")
	for _, x := range experiment.Experiments {
		fmt.Fprintf(&b, "  %-9s %s\n", x.Name, x.Doc)
	}
	return strings.TrimRight(b.String(), "\n")
}

// knownExperiments returns a usage error unless all arguments are names of experiments.
func knownExperiments(c *cobra.Command, args []string) error {
	if unknown := experiment.Unknown(args); unknown != "" {
		return cli.Usagef(c, "the experiments are "+strings.Join(c.ValidArgs[1:], ", ")+"; all is all of them", "unknown experiment %q", unknown)
	}
	return nil
}

func (e *env) bench(c *cobra.Command, args []string, f *benchFlags) error {
	if err := f.check(c); err != nil {
		return err
	}
	if err := f.selectRows(c); err != nil {
		return err
	}
	if f.calibrate {
		return e.calibrate(c, args, f)
	}
	if !cli.Privileged() {
		return &cli.PrivilegeError{CommandLine: e.CommandLine}
	}
	f.options.Progress, f.options.Find = e.Stderr, find
	report, stopped := experiment.Run(c.Context(), args, f.options)
	if report == nil {
		return stopped
	}
	report.Version = cli.Version()
	if err := e.printReport(report, f); err != nil {
		return err
	}
	if stopped != nil {
		return stopped
	}
	missed := report.Missed()
	if len(missed) > 0 && f.strict {
		return fmt.Errorf("%s of %d missed, the first: %s %s", wording.Things(len(missed), "bar", "bars"), report.Bars(), missed[0].Name, missed[0])
	}
	return nil
}

// check returns a usage error if nothing can be measured with the numbers in the flags.
func (f *benchFlags) check(c *cobra.Command) error {
	o := f.options
	switch {
	case o.Rounds < cli.Least[int](c, "rounds"):
		return cli.Usagef(c, "1 is the least", "flag --rounds: must be positive, got %d", o.Rounds)
	case o.Window < cli.Least[time.Duration](c, "window") || o.Window > time.Hour:
		return cli.Usagef(c, "500ms is usual", "flag --window: must be positive and at most an hour, got %v", o.Window)
	case o.Phase < cli.Least[time.Duration](c, "for") || o.Phase > time.Hour:
		return cli.Usagef(c, "10s is usual", "flag --for: must be positive and at most an hour, got %v", o.Phase)
	case o.Routes < cli.Least[int](c, "routes") || o.Routes > experiment.MaxRoutes:
		return cli.Usagef(c, "925525 is usual", "flag --routes: must be 1 to %s, got %d", wording.Count(experiment.MaxRoutes), o.Routes)
	}
	for _, n := range o.Sizes {
		if n < 1 || n > experiment.MaxSize {
			return cli.Usagef(c, "write one or more, as in 1000,1000000", "flag --size: must be 1 to %s, got %d", wording.Count(experiment.MaxSize), n)
		}
	}
	return nil
}

// selectRows parses --rows, which selects the rows to measure.
func (f *benchFlags) selectRows(c *cobra.Command) (err error) {
	if f.rows == "" {
		return nil
	}
	if f.options.Rows, err = regexp.Compile(f.rows); err != nil {
		return cli.Usagef(c, "write a regular expression, as in 'rules=20|ack'", "flag --rows: %v", err)
	}
	return nil
}

// printReport saves the report and prints it.
func (e *env) printReport(r *report.Report, f *benchFlags) error {
	dir := f.out
	if dir == "" {
		dir = filepath.Join(e.StateOrDefault(), "bench", r.Time.Format("20060102T150405Z"))
	}
	saved := r.Save(dir, report.WritePage)
	if saved == nil {
		e.Note("the report is " + filepath.Join(dir, "report.html"))
	}
	if e.JSON {
		return errors.Join(r.WriteJSON(e.Stdout), saved)
	}
	return errors.Join(r.WriteTables(e.Stdout, f.markdown), saved)
}
