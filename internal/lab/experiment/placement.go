// This file is the experiment of that name: where on its way through a router a packet is dropped at least cost.

package experiment

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// The article's figures: the rate of its first test, and what it dropped in its second.
const (
	articleRate  = 280_000
	articleShare = 58_604.0 / 155e6
)

// runPlacement measures what a router with a full table spends on packets, by where a rule drops some of them, and whether
// Floodwall finds the place where that is least.
func runPlacement(ctx context.Context, s *rig.Session) error {
	s.Steps.Show("making %s routes", report.CountText(s.Routes))
	table := maps.Collect(rig.FullTable(s.Routes))
	calibration, err := runCalibration(ctx, s, Groups[:2], maps.All(table), untracked)
	if err != nil {
		return err
	}
	return rig.InLab(ctx, func(l *lab.Lab) error {
		b := &placementBuilder{Builder: rig.Builder{Session: s, Lab: l}, table: table}
		defer b.Close()
		if b.chooser, err = newChooser(calibration.Model); err != nil {
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
	rig.Builder
	table   map[netip.Prefix]netip.Addr
	chooser *chooser
	ways    []*way
	loaded  report.Samples // seconds that the table took, router by router
}

// way is where packets are dropped, and by what.
type way struct {
	name, label string
	article     string // its CPU in the first test
	install     func(context.Context, *placementBuilder, *way) error
	none        bool // drops nothing
	all         bool // drops everything
	swept       bool // is a line of the chart

	subject rig.Subject
	missing string

	drops, streams, own *rig.Probe   // of the first test and the second, the latter by the source that the rule is for as well
	sweep               []*rig.Probe // by the steps of shares
}

// allWays are the rows of the tables.
func allWays() []*way {
	return []*way{
		{name: "no-rule", label: "no rule", install: onBare(""), none: true},
		{name: "empty", label: "empty XDP_DROP (the limit)", install: limitOnBare, all: true},
		{name: "floodwall/xdp", label: "floodwall: XDP", install: onBare("xdp"), swept: true},
		{name: "nft/ingress", label: "nft: ingress", install: byNft(nftIngress)},
		{name: "iptables/raw", label: "iptables: raw", article: "10%", install: byIptables(rawRules), swept: true},
		{name: "nft/raw", label: "nft: raw", install: byNft(nftRaw)},
		{name: "floodwall/nftables/raw", label: "floodwall, nftables: raw", install: byFloodwall("raw"), swept: true},
		{name: "iptables/filter", label: "iptables: filter", article: "12%", install: byIptables(filterRules), swept: true},
		{name: "nft/filter", label: "nft: filter", install: byNft(nftFilter)},
		{name: "floodwall/nftables/filter", label: "floodwall, nftables: filter", install: byFloodwall("filter"), swept: true},
	}
}

// way is the one of a name.
func (b *placementBuilder) way(name string) *way {
	for _, w := range b.ways {
		if w.name == name {
			return w
		}
	}
	return nil
}

func (b *placementBuilder) build(ctx context.Context) (err error) {
	for _, w := range allWays() {
		if w.missing, err = b.SetUp(w.label, func() error { return w.install(ctx, b, w) }); err != nil {
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

// router builds another site with the full table, and with conntrack, which is to leave all packets alone.
func (b *placementBuilder) router() (*rig.Site, error) {
	b.Sites++
	start := time.Now()
	at, err := rig.NewRouter(b.Lab, b.Sites, maps.All(b.table))
	b.loaded = append(b.loaded, time.Since(start).Seconds())
	return at, err
}

// The flow that is dropped: of packets as the article has them, to an address of the router.
var (
	floodSource = netip.MustParseAddr("198.51.100.1")
	floodFlow   = lab.Flow{
		From: lab.Addr(floodSource), To: lab.Addr(rig.Server4), SPort: lab.Port(4000), DPort: lab.Port(rulePort), Size: 14 + 128,
	}
)

// rulePort is the port that the rule is for.
const rulePort = 5001

// streamSize is the size of forwarded packets: 84 GB in 155 million.
const streamSize = 14 + 542

// mixed are four streams to routed destinations beside a share of packets that are dropped. own has them come from the
// source of those, to the same port, so that only the destination tells them apart.
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

// routed is the i-th of some addresses that routes lead to.
func (b *placementBuilder) routed(i int) netip.Addr {
	for p := range rig.FullTable(i + 1) {
		if i--; i < 0 {
			return p.Addr().Next()
		}
	}
	return netip.Addr{}
}

// limitOnBare adds the least that there can be.
func limitOnBare(_ context.Context, b *placementBuilder, w *way) error {
	p, err := rig.LoadInstructions("empty", asm.Mov.Imm(asm.R0, rig.XDPDrop), asm.Return())
	if err == nil {
		w.subject = rig.Subject{Site: b.XDP, Program: b.Own(p)}
	}
	return err
}
