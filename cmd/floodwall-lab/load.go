// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/text/wording"
)

func loadCommand(e *env) *cobra.Command {
	var f lab.Plan
	c := &cobra.Command{
		Use:   "load URL [--connections N | --rate N/s] [--for D] [--keep-alive] [--insecure] [--json]",
		Short: "ask a web server many times and show what its clients get",
		Long: "Load sends requests to a web server and shows requests per second, times by phase, and what failed.\n" +
			"With --rate, requests are due at fixed times, and their times count from then.",
		Example: "  floodwall-lab load http://127.0.0.1:8080/\n" +
			"  floodwall-lab load https://192.0.2.1/ --connections 125 --for 60s --insecure\n" +
			"  floodwall-lab load http://192.0.2.1/ --rate 1000/s --keep-alive --json",
		Args: cli.Exactly(1, "the URL of a web server"),
		RunE: func(c *cobra.Command, args []string) error { return e.load(c, args[0], &f) },
	}
	flags := c.Flags()
	flags.IntVar(&f.Load.Connections, "connections", 0, "`number` of connections at a time (default 10, with --rate as many as it takes)")
	flags.StringVar(&f.Rate, "rate", "", "`requests` that are due at fixed times, as in 1000/s or 90/m")
	flags.DurationVar(&f.Load.Duration, "for", 10*time.Second, "`time` in which requests begin")
	flags.Uint64Var(&f.Load.Requests, "requests", 0, "most `number` of requests (default no bound)")
	flags.BoolVar(&f.Load.KeepAlive, "keep-alive", false, "use connections again; by default each request has a new one")
	flags.DurationVar(&f.Load.Timeout, "timeout", 2*time.Second, "`time` after which a request has failed")
	flags.StringVar(&f.Version, "http", "1.1", "`version` of HTTP, 1.0 or 1.1")
	flags.StringVar(&f.Load.Request.Method, "method", http.MethodGet, "`method` of the requests")
	flags.StringArrayVar(&f.Headers, "header", nil, "further `header` of the requests, as in 'Accept: text/html'")
	flags.BoolVar(&f.Insecure, "insecure", false, "take any certificate")
	e.JSONFlag(c)
	return c
}

// load sends requests and prints the results. After an interrupt, it prints the results up to then.
func (e *env) load(c *cobra.Command, address string, p *lab.Plan) error {
	target, err := lab.ParseTarget(address)
	if err != nil {
		return cli.UsageOf(c, err)
	}
	if p.Load.Connections < cli.Least[int](c, "connections") {
		return cli.Usagef(c, "1 is the least", "flag --connections: must be positive, got %d", p.Load.Connections)
	}
	if err := p.Complete(target); err != nil {
		return cli.UsageOf(c, err)
	}
	live := newLive(e.Stderr)
	result, err := p.Run(c.Context(), func(s lab.Sample) {
		live.show("%.0f s of %.0f, %.0f per second, 99%% within %s, %s failed", s.Time.Seconds(),
			p.Load.Duration.Seconds(), s.Rate, lab.Millis(s.P99), wording.Count(s.Failed))
	})
	live.end()
	if err != nil {
		return err
	}
	if e.JSON {
		err = e.PrintJSON(result)
	} else {
		e.Text(result.Text())
	}
	if err != nil {
		return err
	}
	if c.Context().Err() != nil {
		return c.Context().Err()
	}
	return result.Trouble()
}

// live is a line on a terminal that is overwritten while an action runs.
type live struct{ out io.Writer }

// newLive returns a live line on out. If out is not a terminal, the line is not shown.
func newLive(out io.Writer) *live {
	if cli.IsTerminal(out) {
		return &live{out}
	}
	return &live{io.Discard}
}

func (l *live) show(format string, args ...any) { fmt.Fprintf(l.out, "\r\x1b[Kload: "+format, args...) }

func (l *live) end() { fmt.Fprint(l.out, "\r\x1b[K") }
