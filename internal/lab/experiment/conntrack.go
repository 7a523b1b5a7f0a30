// This file is the experiment of that name: a web server whose conntrack table is full, by an article of 2023.

package experiment

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// runConntrack measures a web server whose table of connections is full, as an article did in 2023, and what helps.
func runConntrack(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) (err error) {
		b := &conntrackBuilder{Builder: rig.Builder{Session: s, Lab: l}}
		defer b.Close()
		for _, c := range conntrackTestCases() {
			if c.missing, err = b.SetUp(c.label, func() error { return b.prepare(ctx, c) }); err != nil {
				return err
			}
			b.cases = append(b.cases, c)
		}
		defer b.publish() // what there is, also when the rest cannot be measured
		return b.measure(ctx)
	})
}

// conntrackTestCase is a row of the table: what guards the server.
type conntrackTestCase struct {
	name, label string
	article     string
	install     func(context.Context, *conntrackBuilder, *site) error // nil: nothing
	full        bool                                                  // the table is nearly full of others' connections
	bars        bool                                                  // must be as good as no firewall

	site    *site
	missing string
	visits  []*conntrackVisit
}

// conntrackBuilder makes the tables of conntrack.
type conntrackBuilder struct {
	rig.Builder
	cases []*conntrackTestCase
}

// room is how many connections fit in the table before it is full: all of the article's table. For a short time of
// requests it is less, so that they fill it early.
func room(s *rig.Session) int {
	const articleTable = 8192
	return int(min(articleTable, articleTable*s.Phase/report.Choice(s.Quick, 20*time.Second, 10*time.Second)))
}

// notes are the choices made.
func (b *conntrackBuilder) notes() []string {
	return []string{
		fmt.Sprintf("Article: 2023, a virtual machine with 1 GB, 60 s of bombardier. Here: %d connections, a new one for each request,", connections),
		fmt.Sprintf("HTTP/1.1 with TLS, timeout %v; nginx in front of a Go program over loopback, %d bytes a page; %d rounds of %v,",
			timeout, conntrackPageSize, b.Rounds, b.Phase),
		"in which the cases take turns. Clients and servers share the machine's cores. Medians of the rounds; shares of the",
		"rate without firewall are taken round by round.",
		"Full table: nf_conntrack_max is the machine's own, which the bench leaves alone, but each namespace has a table of",
		fmt.Sprintf("its own up to it: here, filled with connections that no packet belongs to, except for the room of %s.",
			report.CountText(room(b.Session))),
		"Two of a request, with the one to the Go program, stay for 120 s after their end. Entries do not count those that",
		"it was filled with. Drops are packets that found it full; once full is from the first drop on.",
	}
}

// conntrackTestCases are the rows.
func conntrackTestCases() []*conntrackTestCase {
	nft := func(script string) func(context.Context, *conntrackBuilder, *site) error {
		return func(ctx context.Context, _ *conntrackBuilder, at *site) error {
			_, _, err := rig.RunTool(ctx, at.Server, strings.NewReader(script), "nft", "-f", "-")
			return err
		}
	}
	floodwall := func(target string) func(context.Context, *conntrackBuilder, *site) error {
		return func(ctx context.Context, b *conntrackBuilder, at *site) error {
			_, err := b.Hold(ctx, at.Site, policy, target)
			return err
		}
	}
	return []*conntrackTestCase{
		{name: "no-firewall", label: "no firewall", article: "926 req/s"},
		{
			name: "nft/full", label: "nft: stateful, table full", article: "91.55 req/s, 1.55 s, 2911 time-outs", full: true,
			install: nft(fmt.Sprintf(statefulRules, "")),
		},
		{
			name: "nft/notrack", label: "nft: the same with notrack", article: "598.53 req/s, as off",
			install: nft(fmt.Sprintf(statefulRules, notrack)),
		},
		{name: "floodwall/auto", label: "floodwall: XDP with its nftables companion", install: floodwall("auto"), bars: true},
		{name: "floodwall/nftables", label: "floodwall: nftables", install: floodwall("nftables"), bars: true},
	}
}

// statefulRules is the article's ruleset, with room for more chains.
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

// notrack is what the article adds.
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

// policy is the same for Floodwall, without its devices.
const policy = `default: drop
untracked: [loopback]
services:
  - {name: web, port: [tcp/80, tcp/443, udp/443], track: false}
  - {name: ssh, port: tcp/22}
`

// prepare builds the site of a case.
func (b *conntrackBuilder) prepare(ctx context.Context, c *conntrackTestCase) (err error) {
	if c.site, err = conntrackNewSite(ctx, &b.Builder); err != nil {
		return err
	}
	if c.full {
		if err := b.canFill(c.site); err != nil {
			return err
		}
	}
	if c.install == nil {
		return nil
	}
	return c.install(ctx, b, c.site)
}

// Bounds of filling a table.
const (
	entrySize = 512     // bytes of kernel memory that an entry takes at most, roughly
	mostFill  = 4 << 20 // entries, which take half a minute
)

// canFill says whether there is memory and time to fill a table.
func (b *conntrackBuilder) canFill(at *site) error {
	c, err := at.Server.Conntrack()
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

// measure takes all rounds, in which the cases take turns.
func (b *conntrackBuilder) measure(ctx context.Context) error {
	label := func(c *conntrackTestCase) string { return c.label }
	return rig.InTurns(b.Session, b.cases, label, func(_ int, c *conntrackTestCase) error { return b.take(ctx, c) })
}

// take takes one round of a case.
func (b *conntrackBuilder) take(ctx context.Context, c *conntrackTestCase) error {
	if c.missing != "" {
		return nil
	}
	v, err := c.visit(ctx, b.Phase, room(b.Session))
	if err == nil {
		c.visits = append(c.visits, v)
	}
	return err
}

// visit has clients ask, from a table without earlier ones.
func (c *conntrackTestCase) visit(ctx context.Context, duration time.Duration, room int) (*conntrackVisit, error) {
	if err := c.site.Server.FlushConntrack(); err != nil {
		return nil, err
	}
	filled := 0
	if c.full {
		now, err := c.site.Server.Conntrack()
		if err != nil {
			return nil, err
		}
		filled = now.Max - room
		if err := c.site.Server.FillConntrack(filled); err != nil {
			return nil, err
		}
	}
	return c.site.visit(ctx, duration, filled)
}
