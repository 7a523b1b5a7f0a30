// SPDX-License-Identifier: Apache-2.0

// This file is the experiment limit. It measures limits on the packets per second of each source.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// runLimit measures limits on the packets per second of each source prefix: their cost, and the packets that they pass.
func runLimit(ctx context.Context, s *rig.Session) error {
	return rig.With(ctx, s, func(b *rig.Builder) error {
		b.Flow = limitTestCases[0].flows()[0]
		b.Table.Title = "limit: 64-byte UDP packets, counted by source against a limit and dropped"
		b.Table.Notes = append([]string(nil), notes...)
		if err := b.Limits(); err != nil {
			return err
		}
		var all []*limiter
		for _, c := range limitTestCases {
			for _, t := range allTools {
				name, label := t.name+"/"+c.name, t.label+": "+c.label
				if t.random && c.name != limitTestCases[0].name || !b.Wants(name) {
					continue
				}
				l := &limiter{Row: &rig.Row{Name: name, Label: label, Flood: c.name, Flows: c.flows()}, of: c, xdp: t.name == "floodwall/xdp"}
				if err := l.add(ctx, b, t); err != nil {
					return fmt.Errorf("%s, %s: %w", t.label, c.label, err)
				}
				all = append(all, l)
			}
		}
		if err := b.Measure(ctx); err != nil {
			return err
		}
		return b.Run(ctx, passTable(s, all))
	})
}

// notes describe the choices of the experiment.
var notes = []string{
	"What is over the limit is dropped by its rule, and all else by the next, which counts what the limit lets through: so",
	"rows differ in what the limit costs, and not in what becomes of packets after it. Floodwall's policies have the",
	"standard checks, unless a row says that they are off; rows behind the checks have the same tests, a line each. Tools are",
	"set up as their manuals show: hashlimit and nft's set hold 65,536 prefixes, the LRU map of",
	fmt.Sprintf("the plain BPF program %s.", report.CountText(lruEntries)),
}

// limitTestCase is a limit, and the sources whose packets arrive.
type limitTestCase struct {
	name, label string
	rate        int    // maximum packets per second from a prefix
	per         int    // length of the prefix
	over        string // the network of the sources that send more
	prefixes    int    // number of prefixes of these sources
	light       string // the network of the sources that send less; "": there are none
	least       float64
}

// burst is the number of packets that may arrive at the same time. It exceeds the number of packets in one tick of the slowest kernel clock. A tick
// is the interval at which hashlimit fills its buckets.
const burst = 100

// The destination ports of the two kinds of sources. They distinguish the packets that pass.
const (
	heavyPort = 54
	lightPort = rig.SinkPort
)

// lightShare is the share of the packets that light sources send, if there are any.
const lightShare = 0.98

// limitTestCases are the cases, each with its own part of the tables. In the last case, each light source sends about one packet. That fills the
// memory of every tool that records sources, but the heavy source must still be limited.
var limitTestCases = []limitTestCase{
	{name: "random", label: "1000/s per /16, random sources of 64 /16s", rate: 1000, per: 16, over: "64.0.0.0/10", prefixes: 64, least: rig.LeastLimit},
	{name: "repeated", label: "1000/s per /16, one source", rate: 1000, per: 16, over: "64.1.2.3", prefixes: 1},
	{
		name: "spread", label: "100/s per address, one source among 268 million", rate: 100, per: 32,
		over: "64.1.2.3", prefixes: 1, light: "16.0.0.0/4",
	},
}

// flows returns the packets of the heavy sources, and those of the light sources if there are any.
func (c *limitTestCase) flows() []lab.Flow {
	heavy := limitFlowTo(lab.MustAddrs(c.over), heavyPort)
	if c.light == "" {
		return []lab.Flow{heavy}
	}
	light := c.lightFlow()
	heavy.Weight, light.Weight = 1-lightShare, lightShare
	return []lab.Flow{heavy, light}
}

// lightFlow returns the packets of the sources that send less than the limit.
func (c *limitTestCase) lightFlow() lab.Flow { return limitFlowTo(lab.MustAddrs(c.light), lightPort) }

func limitFlowTo(from lab.Addresses, port uint16) lab.Flow {
	return rig.UDPFlood(from, rig.Server4, port)
}

// inRound returns the case for a round. If the case has a single heavy source, each round has another one. So no tool remembers the source from an
// earlier round.
func (c limitTestCase) inRound(round int) limitTestCase {
	if a, err := netip.ParseAddr(c.over); err == nil {
		for range round {
			a = a.Next()
		}
		c.over = a.String()
	}
	return c
}

// allowed returns the number of packets of the heavy sources that may pass in a time.
func (c *limitTestCase) allowed(t time.Duration) float64 {
	return float64(c.prefixes) * (float64(c.rate)*t.Seconds() + burst)
}

// mask returns the netmask of the prefix as an address.
func (c *limitTestCase) mask() netip.Addr { return rig.Addr4(^uint32(0) << (32 - c.per)) }

// policy returns Floodwall's policy for the case, without devices.
func (c *limitTestCase) policy() string {
	return fmt.Sprintf(`default: drop
rules:
  - {name: limit, proto: udp, over: {rate: %d/s, per: from/%d, burst: %d}, then: drop}
  - {name: heavy, proto: udp, port: %d, then: drop}
  - {name: light, proto: udp, then: drop}
`, c.rate, c.per, burst, heavyPort)
}

// limiter is a tool's limit for a case. It has a row in both tables.
type limiter struct {
	*rig.Row
	of      limitTestCase
	xdp     bool // the row is of Floodwall on XDP, which has goals
	counts  func(context.Context) (passage, error)
	entries func(context.Context) (int, error) // returns the number of stored prefixes; nil: the tool does not tell
	bytes   uint64                             // size of its kernel memory; 0: unknown
}

// add installs the limit at a site of its own, and adds its row.
func (l *limiter) add(ctx context.Context, b *rig.Builder, t tool) (err error) {
	if l.Subject.Site, err = b.NewSite(); err != nil {
		return err
	}
	if l.Missing, err = b.SetUp(l.Label, func() error { return t.install(ctx, b, l) }); err != nil {
		return err
	}
	if l.xdp {
		l.Goals = rig.OfLeast(l.of.least)
	}
	b.Add(l.Row)
	return nil
}

// passRate is the rate in packets per second while passed packets are counted. The slowest rows can handle this rate, so no packet is lost before a
// limit.
const passRate = 500e3

// The goals of Floodwall's limit on XDP: the maximum deviation from the number of packets that the limit allows, and the minimum share of passed
// packets from sources that do not exceed the limit.
const (
	mostOff    = 0.02
	leastLight = 0.98
)

// passTime returns the time for which packets are sent while passed packets are counted.
func passTime(s *rig.Session) time.Duration { return 4 * s.Window }

// passage has the numbers of packets that a limit has handled, since it was installed or during some time.
type passage struct {
	over         uint64        // packets over the limit
	heavy, light uint64        // passed packets, by the kind of source
	received     uint64        // packets that reached the host
	time         time.Duration // the time in which packets were sent
}

// reading returns the figures of a passage. For the heavy sources, it is the number of passed packets divided by the number that the limit allows.
// For the light sources, if there are any, it is the share of their packets that passed.
func (p passage) reading(of limitTestCase) rig.Reading {
	allowed, heavy := of.allowed(p.time), float64(p.heavy)
	read := rig.Reading{
		"of-allowed": heavy / allowed, "off": math.Abs(heavy/allowed - 1), "passed/s": heavy / p.time.Seconds(), "allowed/s": allowed / p.time.Seconds(),
	}
	if sent := lightShare * float64(p.received); of.light != "" && sent > 0 {
		read["of-others"] = min(1, float64(p.light)/sent)
	}
	return read
}

// passTable returns the table with the passed packets of each row.
func passTable(s *rig.Session, rows []*limiter) *rig.Table {
	t := &rig.Table{
		Title: "limit: what passes", Doing: "what passes, ", Prefix: "passes/",
		Results: []string{"of-allowed", "of-others", "held", "kernel-B"},
		Columns: []rig.Column{
			{Head: "passed/s", Unit: "passed/s", Show: rig.Digits(0, 1)}, {Head: "allowed/s", Unit: "allowed/s", Show: rig.Digits(0, 1)},
			{Head: "of allowed", Unit: "of-allowed", Show: rig.Digits(3, 1)}, {Head: "min .. max", Unit: "of-allowed", Show: rig.Range(3, 1)},
			{Head: "of other sources", Unit: "of-others", Show: rig.Digits(3, 1)}, {Head: "prefixes held", Unit: "held", Show: rig.Count},
			{Head: "MB", Unit: "kernel-B", Show: rig.Digits(1, 1e6)},
		},
		Notes: []string{
			fmt.Sprintf("Medians of %d rounds of %v at %.1f Mpps. Passed: packets of the sources that send too much; allowed is their rate", s.Rounds, passTime(s), passRate/1e6),
			fmt.Sprintf("and, once, a burst of %d, for each prefix. Of other sources: the share of the packets that pass of sources that", burst),
			"send less than the limit; they come before that one, which is another in each round. The bar is for the round that",
			"is off most. Held: prefixes in memory after the last round; MB: the program's maps.",
		},
	}
	for _, r := range rows {
		row := &rig.Row{Name: r.Name, Label: r.Label, Missing: r.Missing}
		row.Take = func(ctx context.Context, round int) (rig.Reading, error) {
			return r.passRound(ctx, passTime(s), round+1, round+1 == s.Rounds)
		}
		if r.xdp {
			row.Goals = []rig.Goal{
				{Unit: "off", What: "off what the limit allows", Bound: mostOff, Most: true, Worst: true},
				{Unit: "of-others", What: "of other sources' packets", Bound: leastLight},
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// passRound counts the passed packets of a round. After the last round, it also reads the number of stored prefixes.
func (l *limiter) passRound(ctx context.Context, duration time.Duration, round int, last bool) (rig.Reading, error) {
	at, of := l.Subject.Site, l.of.inRound(round)
	if l.Subject.Program != nil {
		attached, err := at.Lab.Attach(at.In, l.Subject.Program)
		if err != nil {
			return nil, err
		}
		defer attached.Close()
	}
	if of.light != "" { // the heavy source comes when the memory is full
		if _, err := send(ctx, at, []lab.Flow{of.lightFlow()}, duration/2, 0); err != nil {
			return nil, err
		}
	}
	p, err := l.pass(ctx, of.flows(), duration, uint64(round))
	read := p.reading(of)
	if l.bytes > 0 {
		read["kernel-B"] = float64(l.bytes)
	}
	if err == nil && last && l.entries != nil {
		var held int
		held, err = l.entries(ctx)
		read["held"] = float64(held)
	}
	return read, err
}

// pass sends packets for a duration, and counts the passed packets.
func (l *limiter) pass(ctx context.Context, flows []lab.Flow, duration time.Duration, seed uint64) (p passage, err error) {
	before, err := l.count(ctx)
	if err != nil {
		return p, err
	}
	if p.time, err = send(ctx, l.Subject.Site, flows, duration, seed); err != nil {
		return p, err
	}
	after, err := l.count(ctx)
	p.received, p.over = after.received-before.received, after.over-before.over
	p.heavy, p.light = after.heavy-before.heavy, after.light-before.light
	return p, err
}

// send sends packets at passRate for a duration. It waits until the queue is empty, and returns the time that this took.
func send(ctx context.Context, s *rig.Site, flows []lab.Flow, duration time.Duration, seed uint64) (time.Duration, error) {
	source, err := s.Lab.NewSource(s.Out, lab.SourceOptions{
		Flows: flows, CPU: rig.SourceCPU, Seed: seed, Rate: passRate, Count: uint64(passRate * duration.Seconds()), Urgent: true,
	})
	if err != nil {
		return 0, err
	}
	err = source.Run(ctx)
	took := source.Took()
	time.Sleep(20 * time.Millisecond)
	return took, errors.Join(err, source.Close(), ctx.Err())
}

// count returns the number of packets that the row has counted so far, and the number that have reached its host.
func (l *limiter) count(ctx context.Context) (p passage, err error) {
	received, err := l.Subject.Site.In.Received()
	if err != nil {
		return p, err
	}
	p, err = l.counts(ctx)
	p.received = received
	return p, err
}
