// SPDX-License-Identifier: Apache-2.0

// This file sends many requests to a web server, and shows the clients' results.

package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Plan is options of requests as text. Complete turns the text into options of Load.
type Plan struct {
	Load     LoadOptions
	Rate     string   // rate of requests at fixed times, such as 1000/s or 90/m; "": none
	Version  string   // of HTTP: 1.0 or 1.1
	Headers  []string // additional headers, such as Accept: text/html
	Insecure bool     // accepts any certificate

	target *url.URL
}

// Run makes the requests of a complete plan. It calls show with a sample for each second. The result has all measurements until ctx ended.
func (p *Plan) Run(ctx context.Context, show func(Sample)) (result *LoadResult, err error) {
	if p.Load.Server, err = resolve(ctx, p.target); err != nil {
		return nil, err
	}
	result = &LoadResult{URL: p.target.String(), Server: p.Load.Server, plan: p}
	p.Load.OnSample = func(s Sample) {
		result.Samples = append(result.Samples, s)
		show(s)
	}
	result.LoadSummary, err = Load(ctx, p.Load)
	return result, err
}

// Complete checks the texts of the plan and turns them into options, for requests to target. Its errors have the type wording.Error.
func (p *Plan) Complete(target *url.URL) (err error) {
	o := &p.Load
	p.target = target
	switch {
	case o.Duration <= 0:
		return wording.Errorf("10s is usual", "flag --for: must be positive, got %v", o.Duration)
	case o.Timeout <= 0:
		return wording.Errorf("2s is usual", "flag --timeout: must be positive, got %v", o.Timeout)
	case p.Version != "1.0" && p.Version != "1.1":
		return wording.Errorf("other versions are not spoken", "flag --http: must be 1.0 or 1.1, got %q", p.Version)
	}
	if o.Rate, err = requestRate(p.Rate); err != nil {
		return wording.Errorf("write a number per second or minute, as in 1000/s or 90/m", "flag --rate: %v", err)
	}
	if o.Connections == 0 && o.Rate == 0 {
		o.Connections = 10
	}
	o.Interval = time.Second
	o.Request.HTTP10, o.Request.Target, o.Request.Host = p.Version == "1.0", target.RequestURI(), target.Host
	o.Request.Header = http.Header{"User-Agent": {"floodwall-load"}}
	for _, h := range p.Headers {
		if err := addHeader(&o.Request, h); err != nil {
			return wording.Errorf("write it as 'Name: value'", "flag --header: %v", err)
		}
	}
	if target.Scheme == "https" {
		o.TLS = &tls.Config{ServerName: target.Hostname(), InsecureSkipVerify: p.Insecure}
	}
	return nil
}

// ParseRate reads a rate in packets per second, with k or M for thousands and millions; "" is 0.
func ParseRate(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, unit := text, 1.0
	for suffix, u := range map[string]float64{"k": 1e3, "M": 1e6} {
		if n, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = n, u
		}
	}
	rate, err := strconv.ParseFloat(number, 64)
	if err != nil || !(rate > 0) || math.IsInf(rate, 0) {
		return 0, fmt.Errorf("want a positive number of packets per second, got %q", text)
	}
	return rate * unit, nil
}
