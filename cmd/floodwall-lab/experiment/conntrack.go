// SPDX-License-Identifier: Apache-2.0

// This file is the experiment conntrack: a web server whose conntrack table is full. It follows an article of 2023.

package experiment

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// statefulRules is the article's ruleset. The %s is for further chains.
const statefulRules = `table inet bench {
%schain input {
type filter hook input priority filter; policy drop;
iif lo counter accept
ct state established,related counter accept
ct state invalid counter drop
tcp dport http counter accept
tcp dport https counter accept
udp dport https counter accept
tcp dport ssh counter accept
}
}
`

// notrack is the chain that the article adds as a remedy.
const notrack = `chain prerouting {
type filter hook prerouting priority raw; policy accept;
iif lo notrack
tcp dport https notrack
}
chain output {
type filter hook output priority raw; policy accept;
oif lo notrack
tcp sport https notrack
}
`

// policy has the same rules for Floodwall, without devices.
const policy = `default: drop
untracked: [loopback]
services:
  - {name: web, port: [tcp/80, tcp/443, udp/443], track: false}
  - {name: ssh, port: tcp/22}
`

// Shares of the request rate without a firewall.
const (
	leastAsGood  = 0.98 // at least this share is as good
	mostCollapse = 0.5  // at most this share is a collapse
)

// The names of the rows that the claims use, and the units of two figures: the rate after the table is full, and this rate as a share of the rate
// without a firewall.
const (
	openServer, fullServer, untrackedServer = "no-firewall", "nft/full", "nft/notrack"
	onceFull, fullShare                     = "full-req/s", "full-of-no-firewall"
)

// runConntrack measures a web server whose conntrack table is full, and the remedies. An article measured this in 2023.
func runConntrack(ctx context.Context, s *rig.Session) error {
	return rig.With(ctx, s, func(b *rig.Builder) error {
		t := conntrackTable(b)
		defer func() { // publishes all figures so far, also when the rest cannot be measured
			overTime(s.Outcome, t.Rows)
			s.Outcome.Claims = conntrackClaims(t)
		}()
		return s.Run(ctx, t)
	})
}

// conntrackTable returns the rows, and defines how their figures are published.
func conntrackTable(b *rig.Builder) *rig.Table {
	asGood := []rig.Goal{
		{Unit: "of-no-firewall", What: "of no firewall", Bound: leastAsGood},
		{Unit: "entries", What: "entries in the table", Bound: 0, Most: true, Worst: true},
	}
	collapsed := []rig.Goal{{Unit: fullShare, What: "of no firewall, once full", Bound: mostCollapse, Most: true}}
	t := &rig.Table{
		Title: "conntrack: a web server whose table of connections is full",
		Results: []string{
			"req/s", "of-no-firewall", onceFull, "p50-ns", "p90-ns", "p99-ns", "mean-ns", "timeouts", "failed", "entries", "drops", "early-drops",
		},
		Marks:   []rig.Mark{rig.Unsteady("req/s")},
		Notes:   conntrackNotes(b.Session),
		Ranking: &rig.Ranking{Title: "conntrack: requests answered per second", Unit: "req/s", Figure: "req/s", Per: 1, Limit: openServer},
	}
	for _, c := range []struct {
		name, label, article string
		full                 bool // the table is nearly full of connections of other hosts
		guard                rig.Guard
		goals                []rig.Goal
	}{
		{name: openServer, label: "no firewall", article: "926 req/s"},
		{fullServer, "nft: stateful, table full", "91.55 req/s, 1.55 s, 2911 time-outs", true, rig.Guard{Nft: fmt.Sprintf(statefulRules, "")}, collapsed},
		{untrackedServer, "nft: the same with notrack", "598.53 req/s, as off", false, rig.Guard{Nft: fmt.Sprintf(statefulRules, notrack)}, nil},
		{"floodwall/auto", "floodwall: XDP with its nftables companion", "", false, rig.Floodwall("auto", policy), asGood},
		{"floodwall/nftables", "floodwall: nftables", "", false, rig.Floodwall("nftables", policy), asGood},
	} {
		at := &webSite{full: c.full}
		t.Rows = append(t.Rows, &rig.Row{
			Name: c.name, Label: c.label, Goals: c.goals, Article: []string{c.article},
			Setup: &rig.Setup{Label: c.label, Do: func(ctx context.Context) error { return at.prepare(ctx, b, c.guard) }},
			Take:  func(ctx context.Context, _ int) (rig.Reading, error) { return at.visit(ctx, b.Session) },
		})
	}
	none := func(*rig.Row) *rig.Row { return t.Find(openServer) }
	t.Shares = []rig.Share{{Unit: "of-no-firewall", Of: "req/s", By: none}, {Unit: fullShare, Of: onceFull, Base: "req/s", By: none}}
	most := func() (most float64) {
		for _, r := range t.Rows {
			most = slices.Max(append(rates(r), most))
		}
		return most
	}
	t.Columns = append(rig.Articles("article"), []rig.Column{
		{Head: "req/s", Unit: "req/s", Show: rig.Digits(0, 1)}, {Head: "min .. max", Unit: "req/s", Show: rig.Range(0, 1)},
		{Head: "of no firewall", Unit: "of-no-firewall", Show: func(s report.Samples) string { return rig.Digits(3, 1)(s) + " (" + rig.Range(2, 1)(s) + ")" }},
		{Head: "once full", Unit: onceFull, Show: rig.Digits(0, 1)},
		{Head: "over time", Text: func(r *rig.Row) string { return lab.Spark(rates(r), most()) }},
		{Head: "half", Unit: "p50-ns", Show: rig.Millis}, {Head: "90%", Unit: "p90-ns", Show: rig.Millis}, {Head: "99%", Unit: "p99-ns", Show: rig.Millis},
		{Head: "time-outs", Unit: "timeouts", Show: rig.Count}, {Head: "entries", Unit: "entries", Show: rig.Count}, {Head: "drops", Unit: "drops", Show: rig.Count},
	}...)
	return t
}

// conntrackNotes returns texts that describe the choices of the experiment.
func conntrackNotes(s *rig.Session) []string {
	return []string{
		fmt.Sprintf("Article: 2023, a virtual machine with 1 GB, 60 s of bombardier. Here: %d connections, a new one for each request,", connections),
		fmt.Sprintf("HTTP/1.1 with TLS, timeout %v; nginx in front of a Go program over loopback, %d bytes a page; %d rounds of %v,",
			timeout, conntrackPageSize, s.Rounds, s.Phase),
		"in which the cases take turns. Clients and servers share the machine's cores. Medians of the rounds; shares of the",
		"rate without firewall are taken round by round.",
		"Full table: nf_conntrack_max is the machine's own, which the bench leaves alone, but each namespace has a table of",
		fmt.Sprintf("its own up to it: here, filled with connections that no packet belongs to, except for the room of %s.", report.CountText(room(s))),
		"Two of a request, with the one to the Go program, stay for 120 s after their end. Entries do not count those that",
		"it was filled with. Drops are packets that found it full; once full is from the first drop on.",
	}
}

// room returns the number of connections for which the table has space at the start of a visit. It is the size of the article's table. In short runs
// it is less, so that the requests fill the table early.
func room(s *rig.Session) int {
	const articleTable = 8192
	return int(min(articleTable, articleTable*s.Phase/report.Choice(s.Quick, 20*time.Second, 10*time.Second)))
}

// webSite is a web server as in the article, with clients on a separate host. nginx handles TLS and forwards requests to a Go program over the
// loopback device.
type webSite struct {
	*rig.Site
	full bool
}

// The addresses of nginx, and of the Go program behind it.
var (
	webAt    = netip.AddrPortFrom(rig.Server4, 443)
	behindAt = netip.MustParseAddrPort("127.0.0.1:8080")
)

// The number of clients in the article's tool, and the timeout of this tool. A request that takes longer has failed.
const (
	connections = 125
	timeout     = 2 * time.Second
)

// conntrackPageSize is the size of the page in bytes. The article does not say the size of its page.
const conntrackPageSize = 1024

// prepare builds a site. Its servers end with the builder.
func (s *webSite) prepare(ctx context.Context, b *rig.Builder, g rig.Guard) (err error) {
	if s.Site, err = b.Connect(lab.EndOptions{}, lab.EndOptions{}); err != nil {
		return err
	}
	if _, err := b.Lab.NewServer(s.Server, behindAt, make([]byte, conntrackPageSize)); err != nil {
		return err
	}
	n, err := rig.StartNginx(ctx, s.Server, webAt, behindAt)
	if err != nil {
		return err
	}
	b.Owned = append(b.Owned, n.Close)
	if s.full {
		if err := s.canFill(); err != nil {
			return err
		}
	}
	return b.Guard(ctx, s.Site, g)
}

// The bounds for filling a table.
const (
	entrySize = 512     // kernel memory of an entry in bytes, roughly and at most
	mostFill  = 4 << 20 // entries; filling them takes half a minute
)

// canFill returns an error if there is too little memory or time to fill a table.
func (s *webSite) canFill() error {
	c, err := s.Server.Conntrack()
	switch {
	case err != nil:
		return err
	case c.Max == 0 || c.Max > mostFill:
		return &rig.Missing{Reason: fmt.Sprintf("nf_conntrack_max is %d: too large to fill", c.Max)}
	case uint64(c.Max*entrySize) > rig.AvailableMemory()/2:
		return &rig.Missing{Reason: fmt.Sprintf("nf_conntrack_max is %s: not enough memory to fill the table", report.CountText(c.Max))}
	}
	return nil
}

// visit makes the clients send requests, and observes the conntrack table. At the start it removes earlier connections from the table.
func (s *webSite) visit(ctx context.Context, session *rig.Session) (rig.Reading, error) {
	before, err := s.empty(room(session))
	if err != nil {
		return nil, err
	}
	var samples []lab.Sample
	tables := []lab.Conntrack{before}
	var watched error
	sum, err := lab.Load(ctx, lab.LoadOptions{
		Host: s.Out.Host, Server: webAt, TLS: &tls.Config{InsecureSkipVerify: true}, Connections: connections,
		Timeout: timeout, Duration: session.Phase, Interval: min(time.Second, session.Phase/4),
		OnSample: func(sample lab.Sample) {
			now, err := s.Server.Conntrack()
			watched = errors.Join(watched, err)
			samples, tables = append(samples, sample), append(tables, now)
		},
	})
	if err := errors.Join(err, watched); err != nil {
		return nil, fmt.Errorf("requests: %w", err)
	}
	return conntrackReading(sum, samples, tables), nil
}

// empty removes earlier connections from the table. For a row with a full table, it then fills the table with connections of other hosts, but leaves
// space for room entries.
func (s *webSite) empty(room int) (c lab.Conntrack, err error) {
	if err := s.Server.FlushConntrack(); err != nil {
		return c, err
	}
	if s.full {
		now, err := s.Server.Conntrack()
		if err == nil {
			err = s.Server.FillConntrack(now.Max - room)
		}
		if err != nil {
			return c, err
		}
	}
	return s.Server.Conntrack()
}

// conntrackReading returns the figures of a visit. The parameter samples has the clients' results in intervals. The parameter tables has the state of
// the conntrack table before the first interval and after each interval.
func conntrackReading(sum lab.LoadSummary, samples []lab.Sample, tables []lab.Conntrack) rig.Reading {
	first, last := tables[0], tables[len(tables)-1]
	read := rig.Reading{
		"req/s": sum.Rate, "p50-ns": float64(sum.P50), "p90-ns": float64(sum.P90), "p99-ns": float64(sum.P99), "mean-ns": float64(sum.Mean),
		"timeouts": float64(sum.Errors[lab.FailedTimeout]), "failed": float64(sum.Failed), "drops": float64(last.Drops - first.Drops),
		"early-drops": float64(last.EarlyDrops - first.EarlyDrops),
	}
	entries, full, late, ok := 0, time.Duration(0), 0, uint64(0)
	for i, sample := range samples {
		now := tables[i+1]
		entries = max(entries, now.Entries-first.Entries)
		if sample.Late {
			late++
		} else {
			read[rateAt(i-late)] = sample.Rate
			ok += report.Choice(full > 0, sample.OK, 0)
		}
		if full == 0 && now.Drops > tables[i].Drops {
			full = sample.Time
		}
	}
	read["entries"] = float64(entries)
	if left := sum.Time - full; full > 0 && left > 0 {
		read[onceFull] = float64(ok) / left.Seconds()
	}
	if len(samples) > 0 {
		read["interval-s"] = samples[0].Time.Seconds()
	}
	return read
}

// rateAt returns the unit of the figure for an interval: answered requests per second.
func rateAt(i int) string { return fmt.Sprintf("req/s at %d", i) }

// rates returns the median of the answered requests per second for each interval.
func rates(r *rig.Row) (all []float64) {
	for i := 0; ; i++ {
		at := r.Figure(rateAt(i))
		if len(at) == 0 {
			return all
		}
		all = append(all, at.Median())
	}
}

// overTime adds the answered requests per second over time to the outcome: as curves, and as a table with a column for each row.
func overTime(o *report.Outcome, rows []*rig.Row) {
	t := &report.Table{Title: "conntrack: requests answered per second over time", Head: []string{"seconds"}}
	lines, step := 0, 0.0
	for _, r := range rows {
		t.Head, lines = append(t.Head, r.Label), max(lines, len(rates(r)))
		if at := r.Figure("interval-s"); len(at) > 0 {
			step = max(step, at[0])
			o.Series = append(o.Series, report.Series{Name: o.Name + "/" + r.Name, Label: r.Label, Unit: "req/s", Seconds: at[0], Values: rates(r)})
		}
	}
	for i := range lines {
		cells := []string{fmt.Sprintf("%.1f", float64(i+1)*step)}
		for _, r := range rows {
			at := r.Figure(rateAt(i))
			cells = append(cells, report.Choice(len(at) > 0, fmt.Sprintf("%.0f", at.Median()), ""))
		}
		t.AddRow(cells...)
	}
	o.Tables = append(o.Tables, t)
}

// The bounds for the claims of the article of 2023.
const (
	leastWait = 1.0  // seconds that a client waits for each answer while the table is full
	mostApart = 0.05 // the largest difference between the rate with notrack and that without a firewall, as a share
)

// conntrackClaims judges the article's claims with the measured rows.
func conntrackClaims(t *rig.Table) []report.Claim {
	row := func(name string) *rig.Row { return cmp.Or(t.Find(name), &rig.Row{}) }
	none, full, bare := row(openServer), row(fullServer), row(untrackedServer)
	collapse := report.OpenClaim("with a full table, a tenth of the requests is answered", rateShare(91.55, 926),
		fmt.Sprintf("once the table is full, at most %.0f%% of the rate without a firewall is left", 100*mostCollapse))
	wait := report.OpenClaim("with a full table, an answer takes more than a second", "1.55 s",
		fmt.Sprintf("once the table is full, each client has an answer at most every %.0f s: %d clients by their rate", leastWait, connections))
	lost := report.OpenClaim("with a full table, requests time out", "2911 time-outs", "some time out, and none do without a firewall")
	same := report.OpenClaim("with notrack, it is the same with the firewall on and off", "598.53 req/s, both",
		fmt.Sprintf("the rates differ by at most %.0f%%, round by round", 100*mostApart))

	rates, open := full.Figure(onceFull), none.Figure("req/s")
	if base := open.Median(); base > 0 && len(rates) > 0 {
		rate, unsteady := rates.Median(), open.Unsteady() || rates.Unsteady()
		collapse = collapse.Within(rateShare(rate, base), t.Figure(full, fullShare), 0, mostCollapse, unsteady)
		wait = wait.Within(report.Choice(rate > 0, fmt.Sprintf("%.2f s", connections/rate), "no answers"), rates, math.Inf(-1), connections/leastWait, unsteady)
	}
	if len(full.Rounds) > 0 && len(rates) == 0 {
		collapse.Here, wait.Here = "the table did not become full", "the table did not become full"
	}
	if in, out := full.Figure("timeouts"), none.Figure("timeouts"); len(in) > 0 && len(out) > 0 {
		held := report.Choice(out.Longest() == 0, len(in.Positive()), 0)
		lost = lost.Found(fmt.Sprintf("%.0f, without a firewall %.0f", in.Median(), out.Longest()), held, len(in))
	}
	if ratios := t.Figure(bare, "of-no-firewall"); len(ratios) > 0 {
		same = same.Within(fmt.Sprintf("%.3f of no firewall", ratios.Median()), ratios, 1-mostApart, 1+mostApart, ratios.Unsteady())
	}
	return []report.Claim{collapse, wait, lost, same}
}

func rateShare(part, whole float64) string {
	return fmt.Sprintf("%.0f of %.0f req/s (%.2f)", part, whole, part/whole)
}
