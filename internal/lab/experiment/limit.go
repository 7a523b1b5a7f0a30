// This file is the experiment of that name: limits of packets per second by source.

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// runLimit measures limits of packets per second by prefix of the source: what they cost, and what they let through.
func runLimit(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) error {
		b := &limitBuilder{Builder: rig.Builder{Session: s, Lab: l}}
		defer b.Close()
		b.Flow = limitTestCases[0].flows()[0]
		b.Table.Title = "limit: 64-byte UDP packets, counted by source against a limit and dropped"
		b.Table.Notes = append([]string(nil), notes...)
		if err := b.Limits(); err != nil {
			return err
		}
		for _, c := range limitTestCases {
			for _, t := range allTools {
				if t.random && c.name != limitTestCases[0].name {
					continue
				}
				if err := b.addTool(ctx, c, t); err != nil {
					return fmt.Errorf("%s, %s: %w", t.label, c.label, err)
				}
			}
		}
		if err := b.Measure(ctx); err != nil {
			return err
		}
		defer b.publish() // what there is, also when the rest cannot be measured
		return b.passes(ctx)
	})
}

// notes are the choices made.
var notes = []string{
	"What is over the limit is dropped by its rule, and all else by the next, which counts what the limit lets through: so",
	"rows differ in what the limit costs, and not in what becomes of packets after it. Floodwall's policies have the",
	"standard checks, unless a row says that they are off; rows behind the checks have the same tests, a line each. Tools are",
	"set up as their manuals show: hashlimit and nft's set hold 65,536 prefixes, the LRU map of",
	fmt.Sprintf("the plain BPF program %s.", report.CountText(lruEntries)),
}

// limitTestCase is a limit, and sources that it is for.
type limitTestCase struct {
	name, label string
	rate        int    // packets per second that a prefix may have
	per         int    // the prefix's length
	over        string // where the sources are from that send more than that
	prefixes    int    // of them
	light       string // where those are from that send less; "": there are none
	least       float64
}

// burst is what may come at once. It is more than one tick of the slowest kernel clock brings, at which hashlimit
// fills its buckets.
const burst = 100

// Ports of the two kinds of sources, by which what is let through is told apart.
const (
	heavyPort = 54
	lightPort = rig.SinkPort
)

// lightShare is the part of the packets that light sources send, if there are any.
const lightShare = 0.98

// limitTestCases are the tables' parts. In the last, a source is seen about once, which takes what remembers sources to the
// bounds of its memory, while the heavy one must stay limited.
var limitTestCases = []limitTestCase{
	{name: "random", label: "1000/s per /16, random sources of 64 /16s", rate: 1000, per: 16, over: "64.0.0.0/10", prefixes: 64, least: rig.LeastLimit},
	{name: "repeated", label: "1000/s per /16, one source", rate: 1000, per: 16, over: "64.1.2.3", prefixes: 1},
	{
		name: "spread", label: "100/s per address, one source among 268 million", rate: 100, per: 32,
		over: "64.1.2.3", prefixes: 1, light: "16.0.0.0/4",
	},
}

// flows are the packets: those of the sources that send too much, and of the others.
func (c *limitTestCase) flows() []lab.Flow {
	heavy := limitFlowTo(lab.MustAddrs(c.over), heavyPort)
	if c.light == "" {
		return []lab.Flow{heavy}
	}
	light := c.lightFlow()
	heavy.Weight, light.Weight = 1-lightShare, lightShare
	return []lab.Flow{heavy, light}
}

// lightFlow is the packets of the sources that send less than the limit.
func (c *limitTestCase) lightFlow() lab.Flow { return limitFlowTo(lab.MustAddrs(c.light), lightPort) }

func limitFlowTo(from lab.Addresses, port uint16) lab.Flow {
	return rig.UDPFlood(from, rig.Server4, port)
}

// inRound is the case with another source in each round, which no tool remembers from before, where there is one.
func (c limitTestCase) inRound(round int) limitTestCase {
	if a, err := netip.ParseAddr(c.over); err == nil {
		for range round {
			a = a.Next()
		}
		c.over = a.String()
	}
	return c
}

// allowed is how many packets of the sources that send too much may pass in a time.
func (c *limitTestCase) allowed(t time.Duration) float64 {
	return float64(c.prefixes) * (float64(c.rate)*t.Seconds() + burst)
}

// mask is the prefix's netmask, as an address.
func (c *limitTestCase) mask() netip.Addr { return rig.Addr4(^uint32(0) << (32 - c.per)) }

// policy is the case for Floodwall, without devices.
func (c *limitTestCase) policy() string {
	return fmt.Sprintf(`default: drop
rules:
  - {name: limit, proto: udp, over: {rate: %d/s, per: from/%d, burst: %d}, then: drop}
  - {name: heavy, proto: udp, port: %d, then: drop}
  - {name: light, proto: udp, then: drop}
`, c.rate, c.per, burst, heavyPort)
}

// tableRow is a row of both tables.
type tableRow struct {
	*rig.Rate
	of     limitTestCase
	how    limiter
	xdp    bool // Floodwall's, which has bars
	passed []passage
	held   int // prefixes, at the end; -1: unknown
}

// limitBuilder makes the tables of limit.
type limitBuilder struct {
	rig.Builder
	rows []*tableRow
}

// addTool adds the row of a tool with a case.
func (b *limitBuilder) addTool(ctx context.Context, c limitTestCase, t tool) error {
	name, label := t.name+"/"+c.name, t.label+": "+c.label
	if !b.Wants(name) {
		return nil
	}
	b.Steps.Show("installing %s", label)
	at, err := b.NewSite()
	if err != nil {
		return err
	}
	row := &tableRow{of: c, xdp: t.name == "floodwall/xdp", held: -1}
	row.Rate = &rig.Rate{Name: name, Label: label, Flood: c.name, Flows: c.flows()}
	row.how, err = t.install(ctx, b, at, c)
	if row.Missing, err = rig.Tolerate(err); err != nil {
		return err
	}
	row.Rate.Subject = rig.Subject{Site: at, Program: row.how.program}
	if row.xdp {
		row.Share = c.least
	}
	b.Add(row.Rate)
	b.rows = append(b.rows, row)
	return nil
}
