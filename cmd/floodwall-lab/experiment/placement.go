// SPDX-License-Identifier: Apache-2.0

// This file is the experiment placement: it finds the stage of a router at which dropping a packet costs the least.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// The article's figures: the rate of its first test, and the share dropped in its second.
const (
	articleRate  = 280_000
	articleShare = 58_604.0 / 155e6
)

// runPlacement measures the cost of packets on a router with a full table, by the stage at which a rule drops some of them. It also measures whether
// Floodwall chooses the stage of the least cost.
func runPlacement(ctx context.Context, s *rig.Session) error {
	s.Steps.Show("making %s routes", report.CountText(s.Routes))
	table := maps.Collect(rig.FullTable(s.Routes))
	calibration, err := runCalibration(ctx, s, Groups[:2], maps.All(table), untracked)
	if err != nil {
		return err
	}
	return rig.With(ctx, s, func(in *rig.Builder) error {
		b := &placementBuilder{Builder: in, table: table, costs: calibration.Model, probes: map[*rig.Row]*rig.Probe{}}
		if b.policy, err = automaticPolicy(); err != nil {
			return err
		}
		if err := b.build(ctx); err != nil {
			return err
		}
		calibration.Table.AddNote("As on the routers of this experiment, another table of nft has conntrack leave all packets alone.")
		s.Outcome.Tables = append(s.Outcome.Tables, calibration.Table)
		for _, measure := range []func(context.Context) error{b.drops, b.streams, b.sweep, b.moves} {
			if err := measure(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// placementBuilder makes the tables of placement.
type placementBuilder struct {
	*rig.Builder
	table  map[netip.Prefix]netip.Addr
	policy *control.Compiled // with a rule that is placed automatically
	costs  *cost.Model       // of this host
	ways   []*way
	loaded report.Samples // seconds of loading the table of routes, router by router
	probes map[*rig.Row]*rig.Probe
}

// way is a stage and a tool that drop packets.
type way struct {
	name, label string
	article     string // its CPU in the article's first test
	guard       rig.Guard
	program     func(context.Context, *rig.Site) (*ebpf.Program, error) // on the bare router, in place of a guard
	none        bool                                                    // drops nothing
	all         bool                                                    // drops everything
	swept       bool                                                    // has a line in the chart

	subject rig.Subject
	missing string
}

// allWays returns the rows of the tables.
func allWays() []*way {
	return []*way{
		{name: "no-rule", label: "no rule", program: noProgram, none: true},
		{name: "empty", label: "empty XDP_DROP (the limit)", program: dropProgram, all: true},
		{name: "floodwall/xdp", label: "floodwall: XDP", program: ownProgram, swept: true},
		{name: "nft/ingress", label: "nft: ingress", guard: byNft(rig.NftIngress, nftLocal)},
		{name: "iptables/raw", label: "iptables: raw", article: "10%", guard: byIptables(rawRules), swept: true},
		{name: "nft/raw", label: "nft: raw", guard: byNft(rig.NftRaw, nftLocal)},
		{name: "floodwall/nftables/raw", label: "floodwall, nftables: raw", guard: byFloodwall("raw"), swept: true},
		{name: "iptables/filter", label: "iptables: filter", article: "12%", guard: byIptables(filterRules), swept: true},
		{name: "nft/filter", label: "nft: filter", guard: byNft(rig.NftInput, "")},
		{name: "floodwall/nftables/filter", label: "floodwall, nftables: filter", guard: byFloodwall("filter"), swept: true},
	}
}

func (b *placementBuilder) build(ctx context.Context) (err error) {
	for _, w := range allWays() {
		if w.missing, err = b.SetUp(w.label, func() error { return b.install(ctx, w) }); err != nil {
			return err
		}
		b.ways = append(b.ways, w)
		if w.missing == "" && !w.all {
			if err := b.check(ctx, w); err != nil {
				return fmt.Errorf("%s: %w", w.label, err)
			}
		}
	}
	return nil
}

// router builds another site with the full table. It also has conntrack, which must ignore all packets.
func (b *placementBuilder) router() (*rig.Site, error) {
	b.Sites++
	start := time.Now()
	at, err := rig.NewRouter(b.Lab, b.Sites, maps.All(b.table))
	b.loaded = append(b.loaded, time.Since(start).Seconds())
	return at, err
}

// The dropped flow: packets like the article's, to an address of the router.
var (
	floodSource = netip.MustParseAddr("198.51.100.1")
	floodFlow   = lab.Flow{
		From: lab.Addr(floodSource), To: lab.Addr(rig.Server4), SPort: lab.Port(4000), DPort: lab.Port(rulePort), Size: 14 + 128,
	}
)

// rulePort is the port of the rule.
const rulePort = 5001

// streamSize is the size of forwarded packets in bytes: 84 GB in 155 million.
const streamSize = 14 + 542

// mixed returns four streams to routed destinations, and a share of packets that are dropped. With own, the streams have the source and the port of
// the dropped packets, so only the destination distinguishes them.
func (b *placementBuilder) mixed(share float64, own bool) []lab.Flow {
	if share >= 1 {
		return []lab.Flow{floodFlow}
	}
	dropped := floodFlow
	dropped.Weight = share
	flows := []lab.Flow{dropped}
	for i := range 4 {
		from := netip.AddrFrom4([4]byte{203, 0, 113, byte(1 + i)})
		flows = append(flows, lab.Flow{
			From: lab.Addr(report.Choice(own, floodSource, from)), To: lab.Addr(b.routed(i)), SPort: lab.Port(uint16(5000 + i)),
			DPort: lab.Port(rulePort), Size: streamSize, Weight: (1 - share) / 4,
		})
	}
	return flows
}

// routed returns the i-th destination address that a route leads to.
func (b *placementBuilder) routed(i int) netip.Addr {
	for p := range rig.FullTable(i + 1) {
		if i--; i < 0 {
			return p.Addr().Next()
		}
	}
	return netip.Addr{}
}

// The rule in the languages of all tools. In raw, and on XDP, it must test whether the destination is local.
const (
	iptablesMatch   = "-s 198.51.100.1 -p udp --dport 5001"
	nftLocal        = "fib daddr type local "
	placementPolicy = "default: pass\nchecks: off\nxdp: always\nplacement: %s\nrules:\n" +
		"  - {name: flood, from: 198.51.100.1, to: local, proto: udp, port: 5001, then: drop}\n"
)

// The input for iptables. The host has both of its tables in any case, like the article's router.
const (
	rawRules = "*raw\n-A PREROUTING " + iptablesMatch + " -m addrtype --dst-type LOCAL -j DROP\n-A PREROUTING -j CT --notrack\nCOMMIT\n" +
		"*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\nCOMMIT\n"
	filterRules = "*raw\n-A PREROUTING -j CT --notrack\nCOMMIT\n*filter\n-A INPUT " + iptablesMatch + " -j DROP\nCOMMIT\n"
)

// untracked makes conntrack ignore all packets, after the chains of raw.
const untracked = "table inet untracked {\nchain prerouting {\n" +
	"type filter hook prerouting priority -299; policy accept;\nnotrack\n}\n}\n"

// byIptables, byNft and byFloodwall return the rule in a tool, on a router whose conntrack ignores all packets.
func byIptables(script string) rig.Guard { return rig.Guard{Iptables: script} }

func byNft(hook rig.NftHook, local string) rig.Guard {
	return rig.Guard{Nft: untracked + hook.Script("ip saddr 198.51.100.1 udp dport 5001 "+local+"drop\n", "")}
}

func byFloodwall(stage string) rig.Guard {
	g := rig.Floodwall("nftables", fmt.Sprintf(placementPolicy, stage))
	g.Nft = untracked
	return g
}

// install installs a way on a router of its own. On the bare router, a program is attached only while it is measured.
func (b *placementBuilder) install(ctx context.Context, w *way) (err error) {
	if w.program == nil {
		if w.subject.Site, err = b.router(); err != nil {
			return err
		}
		return b.Guard(ctx, w.subject.Site, w.guard)
	}
	if b.XDP == nil {
		if b.XDP, err = b.router(); err != nil {
			return err
		}
		if err := b.Guard(ctx, b.XDP, rig.Guard{Nft: untracked}); err != nil {
			return err
		}
	}
	w.subject.Site = b.XDP
	if w.subject.Program, err = w.program(ctx, b.XDP); err == nil && w.subject.Program != nil {
		b.Own(w.subject.Program)
	}
	return err
}

// The programs of the bare router: none, the smallest possible one, and Floodwall's.
func noProgram(context.Context, *rig.Site) (*ebpf.Program, error) { return nil, nil }

func dropProgram(context.Context, *rig.Site) (*ebpf.Program, error) {
	return rig.LoadInstructions("empty", asm.Mov.Imm(asm.R0, rig.XDPDrop), asm.Return())
}

func ownProgram(ctx context.Context, at *rig.Site) (*ebpf.Program, error) {
	a, err := at.Apply(ctx, fmt.Sprintf(placementPolicy, "earliest"), nil)
	if err != nil {
		return nil, err
	}
	return a.Program, nil
}

// check sends some packets of each kind, and checks that the router forwards exactly the packets that it must forward. Otherwise a measurement would
// be useless.
func (b *placementBuilder) check(ctx context.Context, w *way) error {
	at := w.subject.Site
	before, err := at.Server.IPCounts()
	if err != nil {
		return err
	}
	stream := floodFlow
	stream.To = lab.Addr(b.routed(0))
	for _, flow := range []lab.Flow{floodFlow, stream} {
		p := &rig.Probe{Label: w.label, Subject: w.subject, Flows: []lab.Flow{flow}}
		err := errors.Join(p.Open(0, rig.TestPackets, 1), p.Measure(ctx), p.Close())
		if err != nil {
			return err
		}
	}
	after, err := at.Server.IPCounts()
	if err != nil {
		return err
	}
	delivered, forwarded := after.Delivered-before.Delivered, after.Forwarded-before.Forwarded
	if want := report.Choice[uint64](w.none, rig.TestPackets, 0); delivered != want || forwarded != rig.TestPackets {
		return fmt.Errorf("of %d packets each, %d are delivered and %d forwarded, want %d and %d",
			rig.TestPackets, delivered, forwarded, want, rig.TestPackets)
	}
	return nil
}
