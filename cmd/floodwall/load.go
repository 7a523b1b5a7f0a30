package main

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/lab"
)

// loadFlags are the flags of load.
type loadFlags struct {
	options  lab.LoadOptions
	rate     string
	version  string
	headers  []string
	insecure bool
}

func loadCommand(e *env) *cobra.Command {
	var f loadFlags
	c := &cobra.Command{
		Use:   "load URL [--connections N | --rate N/s] [--for D] [--keep-alive] [--insecure] [--json]",
		Short: "ask a web server many times and show what its clients get",
		Long: "Load sends requests to a web server and shows requests per second, times by phase, and what failed.\n" +
			"With --rate, requests are due at fixed times, and their times count from then.",
		Example: "  floodwall load http://127.0.0.1:8080/\n" +
			"  floodwall load https://192.0.2.1/ --connections 125 --for 60s --insecure\n" +
			"  floodwall load http://192.0.2.1/ --rate 1000/s --keep-alive --json",
		Args: exactly(1, "the URL of a web server"),
		RunE: func(c *cobra.Command, args []string) error { return e.load(c, args[0], &f) },
	}
	flags := c.Flags()
	flags.IntVar(&f.options.Connections, "connections", 0, "`number` of connections at a time (default 10, with --rate as many as it takes)")
	flags.StringVar(&f.rate, "rate", "", "`requests` that are due at fixed times, as in 1000/s or 90/m")
	flags.DurationVar(&f.options.Duration, "for", 10*time.Second, "`time` in which requests begin")
	flags.Uint64Var(&f.options.Requests, "requests", 0, "most `number` of requests (default no bound)")
	flags.BoolVar(&f.options.KeepAlive, "keep-alive", false, "use connections again; by default each request has a new one")
	flags.DurationVar(&f.options.Timeout, "timeout", 2*time.Second, "`time` after which a request has failed")
	flags.StringVar(&f.version, "http", "1.1", "`version` of HTTP, 1.0 or 1.1")
	flags.StringVar(&f.options.Request.Method, "method", http.MethodGet, "`method` of the requests")
	flags.StringArrayVar(&f.headers, "header", nil, "further `header` of the requests, as in 'Accept: text/html'")
	flags.BoolVar(&f.insecure, "insecure", false, "take any certificate")
	e.jsonFlag(c)
	return c
}

// load asks, and prints what came of it, also when it was interrupted.
func (e *env) load(c *cobra.Command, address string, f *loadFlags) error {
	target, err := parseTarget(c, address)
	if err == nil {
		err = f.complete(c, target)
	}
	if err != nil {
		return err
	}
	if f.options.Server, err = resolve(c.Context(), target); err != nil {
		return err
	}
	result := &loadResult{URL: target.String(), Server: f.options.Server, flags: f}
	live := newLive(e.stderr)
	f.options.OnSample = func(s lab.Sample) {
		result.Samples = append(result.Samples, s)
		live.show("%.0f s of %.0f, %.0f per second, 99%% within %s, %s failed", s.Time.Seconds(),
			f.options.Duration.Seconds(), s.Rate, lab.Millis(s.P99), count(s.Failed))
	}
	result.LoadSummary, err = lab.Load(c.Context(), f.options)
	live.end()
	if err != nil {
		return err
	}
	if err := e.printLoad(result); err != nil {
		return err
	}
	if c.Context().Err() != nil {
		return c.Context().Err()
	}
	return result.trouble()
}

// complete checks the flags and makes options of them.
func (f *loadFlags) complete(c *cobra.Command, target *url.URL) (err error) {
	o := &f.options
	switch {
	case o.Connections < least[int](c, "connections"):
		return usagef(c, "1 is the least", "flag --connections: must be positive, got %d", o.Connections)
	case o.Duration <= 0:
		return usagef(c, "10s is usual", "flag --for: must be positive, got %v", o.Duration)
	case o.Timeout <= 0:
		return usagef(c, "2s is usual", "flag --timeout: must be positive, got %v", o.Timeout)
	case f.version != "1.0" && f.version != "1.1":
		return usagef(c, "other versions are not spoken", "flag --http: must be 1.0 or 1.1, got %q", f.version)
	}
	if o.Rate, err = requestRate(f.rate); err != nil {
		return usagef(c, "write a number per second or minute, as in 1000/s or 90/m", "flag --rate: %v", err)
	}
	if o.Connections == 0 && o.Rate == 0 {
		o.Connections = 10
	}
	o.Interval = time.Second
	o.Request.HTTP10, o.Request.Target, o.Request.Host = f.version == "1.0", target.RequestURI(), target.Host
	o.Request.Header = http.Header{"User-Agent": {"floodwall-load"}}
	for _, h := range f.headers {
		if err := addHeader(&o.Request, h); err != nil {
			return usagef(c, "write it as 'Name: value'", "flag --header: %v", err)
		}
	}
	if target.Scheme == "https" {
		o.TLS = &tls.Config{ServerName: target.Hostname(), InsecureSkipVerify: f.insecure}
	}
	return nil
}
