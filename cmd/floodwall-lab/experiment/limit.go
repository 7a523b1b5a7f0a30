// This file is the experiment limit. It measures limits on the packets per second of each source.

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
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
				l := &limiter{Rate: &rig.Rate{Name: name, Label: label, Flood: c.name, Flows: c.flows()}, of: c, xdp: t.name == "floodwall/xdp"}
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
	*rig.Rate
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
		l.Share = l.of.least
	}
	b.Add(l.Rate)
	return nil
}
