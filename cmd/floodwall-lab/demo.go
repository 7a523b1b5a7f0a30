// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/demo"
	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// demoFlags are the flags of demo.
type demoFlags struct {
	options demo.Options
	rate    string
	fleet   bool
}

func demoCommand(e *env) *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use:   "demo [--fleet] [--duration D] [--rate PPS] [--list FILE] [--report DIR] [--json]",
		Short: "show a web server under a flood, without and with Floodwall",
		Long: "Demo floods a real web server in network namespaces of its own, and shows what clients get, without and with a policy. It prints the\n" +
			"daemon's live page and report of the attack. With --fleet it attacks one of three web servers, which share their bans through a hub.",
		Example: "  floodwall-lab demo\n  floodwall-lab demo --fleet\n  floodwall-lab demo --rate 1.5M --list blocked.txt",
		Args:    cli.None,
		RunE:    func(c *cobra.Command, _ []string) error { return e.demo(c, &f) },
	}
	e.JSONFlag(c)
	c.Flags().DurationVar(&f.options.Duration, "duration", 6*time.Second, "`time` of each phase")
	c.Flags().BoolVar(&f.fleet, "fleet", false, "show a fleet of three web servers that share bans")
	c.Flags().StringVar(&f.rate, "rate", "", "`packets` per second of the flood, as in 1.5M; by default, what fits this machine")
	c.Flags().StringVar(&f.options.List, "list", "", "`file` of bad addresses, which send part of the flood; by default, a made-up one")
	c.Flags().StringVar(&f.options.Report, "report", "", "`directory` for the report and the packets of the attack; by default, a new one for temporary files")
	return c
}

func (e *env) demo(c *cobra.Command, f *demoFlags) (err error) {
	if f.options.Rate, err = lab.ParseRate(f.rate); err != nil {
		return cli.Usagef(c, "write a number, as in 800000, 800k or 1.5M", "flag --rate: %v", err)
	}
	if f.options.Duration < time.Second {
		return cli.Usagef(c, "requests have a second to be answered", "flag --duration: must be at least 1s, got %v", f.options.Duration)
	}
	if f.fleet && (f.rate != "" || f.options.List != "" || f.options.Report != "") {
		return cli.Usagef(c, cli.HelpHint(c), "--fleet goes without --rate, --list and --report")
	}
	if !cli.Privileged() {
		return &cli.PrivilegeError{CommandLine: e.CommandLine}
	}
	if f.fleet {
		return e.demoFleet(c, f)
	}
	if f.options.Program, err = find("floodwall"); err != nil {
		return err
	}
	f.options.Owner = demo.Owner{UID: e.number("SUDO_UID"), GID: e.number("SUDO_GID")}
	f.options.Done = e.demoDone
	summary, err := demo.Run(c.Context(), f.options, demo.NewViewer(e.Stderr, e.Getenv))
	if err != nil {
		return err
	}
	if trouble := summary.Trouble(); trouble != nil {
		return trouble
	}
	return nil
}

// find returns the path of another program of Floodwall that a demonstration needs.
func find(program string) (string, error) {
	file, err := cli.Find(program)
	if errors.Is(err, fs.ErrNotExist) {
		err = wording.WithHint(fmt.Errorf("this runs %s, which is not installed here", program), cli.Get(program))
	}
	return file, err
}

// number returns the numeric value of an environment variable, or 0 when the variable is not set.
func (e *env) number(variable string) int {
	n, _ := strconv.Atoi(e.Getenv(variable))
	return n
}

// pageTime is how long the daemon's page stays at the end of a demonstration.
const pageTime = 2 * time.Minute

// demoDone prints the summary. On a terminal, it then keeps the daemon's page available for pageTime.
func (e *env) demoDone(ctx context.Context, s *demo.Summary) error {
	if e.JSON {
		return e.PrintJSON(s)
	}
	e.Text(s.Text(demo.Width(e.Stdout)))
	if s.Trouble() != nil {
		return nil
	}
	e.Text(demo.Next(e.called("floodwall")))
	demo.Stay(ctx, e.Stdin, e.Stdout, s.Page, pageTime)
	return nil
}

// demoFleet is the command demo --fleet.
func (e *env) demoFleet(c *cobra.Command, f *demoFlags) error {
	if e.Getenv(demo.InsideVar) == "" {
		return e.elsewhere(c, demo.InsideVar, demo.Namespaces())
	}
	summary, err := demo.RunFleet(c.Context(), demo.FleetOptions{Duration: f.options.Duration, Find: find, Log: func(text string) { fmt.Fprintln(e.Stderr, text) }})
	if err != nil {
		return err
	}
	if e.JSON {
		err = e.PrintJSON(summary)
	} else {
		e.Text("\n" + summary.Text())
	}
	if trouble := summary.Trouble(); trouble != nil && err == nil {
		return trouble
	}
	if !e.JSON {
		e.Text(demo.FleetNext(e.called("floodwall-hub")))
	}
	return err
}

// called returns the command with which the user would run another program in the directory of this program.
func (e *env) called(program string) string {
	own := e.CommandLine[0]
	name := own[:strings.LastIndex(own, "/")+1] + program
	if e.Getenv("SUDO_UID") != "" {
		name = "sudo " + name
	}
	return name
}
