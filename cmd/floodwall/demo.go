package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/demo"
	"github.com/floodwall/floodwall/internal/demo/fleet"
	"github.com/floodwall/floodwall/internal/lab"
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
		Use:   "demo [--fleet] [--duration D] [--rate PPS] [--list FILE] [--json]",
		Short: "show a web server under a flood, without and with Floodwall",
		Long: "Demo floods a real web server in network namespaces of its own, and shows what the server's clients get, without and with\n" +
			"a policy. With --fleet it attacks one of three web servers, which share their bans through a hub.",
		Example: "  floodwall demo\n  floodwall demo --fleet\n  floodwall demo --rate 1.5M --list blocked.txt",
		Args:    none,
		RunE:    func(c *cobra.Command, _ []string) error { return e.demo(c, &f) },
	}
	e.jsonFlag(c)
	c.Flags().DurationVar(&f.options.Duration, "duration", 6*time.Second, "`time` of each phase")
	c.Flags().BoolVar(&f.fleet, "fleet", false, "show a fleet of three web servers that share bans")
	c.Flags().StringVar(&f.rate, "rate", "", "`packets` per second of the flood, as in 1.5M; by default, what fits this machine")
	c.Flags().StringVar(&f.options.List, "list", "", "`file` of bad addresses, which send part of the flood; by default, a made-up one")
	return c
}

func (e *env) demo(c *cobra.Command, f *demoFlags) (err error) {
	if f.options.Rate, err = lab.ParseRate(f.rate); err != nil {
		return usagef(c, "write a number, as in 800000, 800k or 1.5M", "flag --rate: %v", err)
	}
	if f.options.Duration < time.Second {
		return usagef(c, "requests have a second to be answered", "flag --duration: must be at least 1s, got %v", f.options.Duration)
	}
	if f.fleet && (f.rate != "" || f.options.List != "") {
		return usagef(c, helpHint(c), "--fleet goes without --rate and --list")
	}
	if !privileged() {
		return &privilegeError{commandLine: e.commandLine}
	}
	if f.fleet {
		return e.demoFleet(c, f)
	}
	summary, err := demo.Run(c.Context(), f.options, demo.NewViewer(e.stderr, e.getenv))
	if err != nil {
		return err
	}
	if e.json {
		err = e.printJSON(summary)
	} else {
		e.text(summary.Text(demo.Width(e.stdout)))
	}
	if trouble := summary.Trouble(); trouble != nil && err == nil {
		return trouble
	}
	if !e.json {
		e.text(demo.Next(e.called()))
	}
	return err
}

// demoFleet is demo --fleet.
func (e *env) demoFleet(c *cobra.Command, f *demoFlags) error {
	if e.getenv(fleet.InsideVar) == "" {
		return e.elsewhere(c, fleet.InsideVar, fleet.Namespaces())
	}
	summary, err := fleet.Run(c.Context(), fleet.Options{Duration: f.options.Duration, Log: func(text string) { fmt.Fprintln(e.stderr, text) }})
	if err != nil {
		return err
	}
	if e.json {
		err = e.printJSON(summary)
	} else {
		e.text("\n" + summary.Text())
	}
	if trouble := summary.Trouble(); trouble != nil && err == nil {
		return trouble
	}
	if !e.json {
		e.text(fleet.Next(e.called()))
	}
	return err
}

// called is how the user has called this program.
func (e *env) called() string {
	name := "floodwall"
	if strings.Contains(e.commandLine[0], "/") {
		name = e.commandLine[0]
	}
	if e.getenv("SUDO_UID") != "" {
		name = "sudo " + name
	}
	return name
}
