// This file is the experiment `cost`: what a packet costs by what is done with it, by an article of 2016.

package experiment

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// runPacketCost measures what one packet costs, case by case as an article did in 2016, with the article's tool, with Floodwall
// on each target, and with the least that there can be.
func runPacketCost(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) error {
		b := &packetcostBuilder{Builder: rig.Builder{Session: s, Lab: l, Flow: flow}}
		defer b.Close()
		b.Table.Title = "cost: 128-byte UDP packets from one address and port to another"
		b.Table.Notes = append([]string(nil), packetcostNotes...)
		if err := b.build(ctx); err != nil {
			return err
		}
		two, one := &b.Table, b.Table.On(rig.OneCore)
		if err := two.Measure(ctx, s); err != nil {
			return err
		}
		one.Untold = func() []*rig.Rate { return untold(one) }
		if err := one.Measure(ctx, s); err != nil {
			return err
		}
		s.Outcome.Claims = outcome(one)
		return nil
	})
}

// packetcostNotes are the choices made where the article is silent.
var packetcostNotes = []string{
	"Article: Strongarm 2016, one core of a small EC2 instance, Linux 4.4. Its tool is iptables: here, iptables-legacy.",
	"A packet of 128 bytes is one whose IP header says so: a frame of 142. Accepted packets go to a socket that nobody",
	"reads, where they are discarded once its buffer is full. The rule that drops is for UDP to port 53. The source is in",
	"the sets; the strings are not in the packets, which the next rule drops; hashlimit accepts 1000/s of each /16 and the",
	"next rule drops the rest, with bursts of what the rate gives in a second. Floodwall's policies have checks: off, as",
	"iptables has none, and it chooses the stages.",
	"64 strings, which the article has not, are 64 rules of iptables (bm) and one of Floodwall. The bars are for XDP: of",
	"what the empty program takes, and how many times (x) the rate of iptables with one string (bm).",
	"Cost: time per packet above that of iptables' drop in raw. For accepting with conntrack, the article's 20% is above",
	"accepting without.",
}

// The flow of the article: one source and one destination, address and port.
var (
	flowSource = netip.MustParseAddr("10.0.0.1")
	flow       = lab.Flow{
		From: lab.Addr(flowSource), To: lab.Addr(rig.Server4), SPort: lab.Port(4000), DPort: lab.Port(rig.SinkPort), Size: 14 + 128,
	}
)

// packetcostBuilder makes the table of packetcost.
type packetcostBuilder struct{ rig.Builder }

func (b *packetcostBuilder) build(ctx context.Context) error {
	if err := b.Limits(); err != nil {
		return err
	}
	for _, accepting := range []func() error{b.addPass, b.addNoFirewall} {
		if err := accepting(); err != nil {
			return err
		}
	}
	for _, c := range packetcostTestCases() {
		if err := b.addCase(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.label, err)
		}
	}
	return nil
}

// addPass adds the limit of accepting with a program attached.
func (b *packetcostBuilder) addPass() error {
	at, err := newSinkSite(&b.Builder)
	if err != nil {
		return err
	}
	p, err := rig.LoadInstructions("pass", asm.Mov.Imm(asm.R0, xdpPass), asm.Return())
	if err != nil {
		return err
	}
	b.Add(&rig.Rate{
		Name: "pass", Label: "empty XDP_PASS, no firewall (the limit of accepting)", Subject: rig.Subject{Site: at.Site, Program: b.Own(p)},
	})
	return nil
}

// xdpPass is XDP_PASS of linux/bpf.h.
const xdpPass = 2

func (b *packetcostBuilder) addNoFirewall() error {
	at, err := newSinkSite(&b.Builder)
	if err == nil {
		b.Add(&rig.Rate{Name: "accept", Label: "accept, no firewall", Subject: rig.Subject{Site: at.Site}})
	}
	return err
}

// addCase adds the rows of a case: with iptables, and with Floodwall on each target.
func (b *packetcostBuilder) addCase(ctx context.Context, c packetcostTestCase) error {
	if err := b.addIptables(ctx, c); err != nil {
		return err
	}
	if c.policy == nil {
		b.Add(&rig.Rate{Name: "floodwall/" + c.name, Label: "floodwall: " + c.ownLabel(), Missing: c.lacks})
		return nil
	}
	for _, target := range targets {
		row := &rig.Rate{Name: "floodwall/" + target + "/" + c.name, Label: "floodwall, " + target + ": " + c.ownLabel()}
		if !b.Wants(row.Name) {
			continue
		}
		if err := b.addTarget(ctx, row, c, target); err != nil {
			return fmt.Errorf("floodwall, %s: %w", target, err)
		}
	}
	return nil
}

// addIptables adds the row of a case with iptables. The rows that others are compared with are always there.
func (b *packetcostBuilder) addIptables(ctx context.Context, c packetcostTestCase) error {
	row := &rig.Rate{Name: "iptables/" + c.name, Label: "iptables: " + c.label, Article: c.article}
	switch {
	case c.name == baseCase:
		b.Table.Base, b.Table.By = row, "x-raw-drop"
	case c.name == rivalCase:
		b.Table.Rival = row
	case !b.Wants(row.Name):
		return nil
	}
	return b.fill(ctx, row, c, func(at *rig.Site) error { return c.install(ctx, at) })
}

// addTarget adds the row of a case for a target, without figures when it cannot do that.
func (b *packetcostBuilder) addTarget(ctx context.Context, row *rig.Rate, c packetcostTestCase, target string) error {
	if row.Missing = c.cannot[target]; row.Missing != "" {
		b.Add(row)
		return nil
	}
	if target == "xdp" {
		row.Share, row.Times = c.least, c.times
	}
	return b.addFloodwall(ctx, row, c, target)
}

// fill adds a row for what is installed at a site of its own, after a look at what becomes of packets there.
func (b *packetcostBuilder) fill(ctx context.Context, row *rig.Rate, c packetcostTestCase, install func(*rig.Site) error) error {
	b.Steps.Show("installing %s", row.Label)
	at, err := newSinkSite(&b.Builder)
	if err != nil {
		return err
	}
	if row.Missing, err = rig.Tolerate(install(at.Site)); err != nil {
		return err
	}
	b.Add(row)
	row.Subject = rig.Subject{Site: at.Site}
	if row.Missing != "" || c.some {
		return nil
	}
	return at.expect(ctx, flow, c.accept)
}

// text is a policy that needs no file.
func text(policy string) func() (string, func(), error) {
	return func() (string, func(), error) { return policy, func() {}, nil }
}
