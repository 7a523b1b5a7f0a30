// This file is the experiment of that name: dropping packets, by number of rules, checks and kind of packet.

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// runDrop measures what policies cost before the packet is dropped.
func runDrop(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) error {
		b := &rig.Builder{Session: s, Lab: l}
		defer b.Close()
		b.Flow = rig.Flood(rig.RandomHosts(rig.MaxSources).Listed)
		if err := b.Limits(); err != nil {
			return err
		}
		for _, add := range []func(context.Context, *rig.Builder) error{addFloodwall, addIptables, addNft} {
			if err := add(ctx, b); err != nil {
				return err
			}
		}
		b.Table.Rows = append(b.Table.Rows, &rig.Rate{
			Name: "bpfilter", Label: "bpfilter", Missing: "not packaged in Debian; see github.com/facebook/bpfilter",
		})
		b.Table.Title = "drop: 64-byte UDP packets from random sources, dropped on one core"
		return b.Measure(ctx)
	})
}

// addFloodwall adds the programs of policies.
func addFloodwall(ctx context.Context, b *rig.Builder) error {
	builtIn := 0 // rules that every program has, whatever the policy
	applied := map[string]*rig.Applied{}
	resting := time.Now() // the protections of policies that are unloaded: they drop nothing until then
	for _, c := range cases(b.Quick) {
		name := "floodwall/" + c.name
		if !b.Wants(name) {
			continue
		}
		b.Steps.Show("applying %s", c.label)
		// Not by the policy alone: segments cost more after SYNs, which leave notes of their cookies, and packets beside open flows.
		key := fmt.Sprint(c.policy, c.flood, c.open)
		a := applied[key]
		if a == nil {
			var err error
			if a, err = apply(ctx, b, &c); err != nil {
				return fmt.Errorf("floodwall: %s: %w", c.label, err)
			}
			applied[key] = a
			if c.policy == rig.SYNPolicy {
				resting = time.Now().Add(control.Resting)
			}
		}
		label := "floodwall: " + c.label
		if c.rules == 0 && c.flood == "" {
			builtIn = a.Rules
		}
		if left := a.Rules - builtIn; c.rules > 0 && left < c.rules {
			label += fmt.Sprintf(" (merged to %s)", report.CountText(left))
		}
		b.Add(&rig.Rate{
			Name: name, Label: label, Subject: rig.Subject{Site: b.XDP, Program: a.Program},
			Flood: c.flood, Flows: c.flows, Share: c.share, Extra: []lab.Metric{{Value: a.Seconds, Unit: "apply-s"}},
		})
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(resting)):
		return nil
	}
}

// apply loads the program of a case.
func apply(ctx context.Context, b *rig.Builder, c *dropTestCase) (*rig.Applied, error) {
	verdicts := map[string]string{}
	if c.packet != "" {
		verdicts[c.packet] = c.reason
	}
	a, err := b.XDP.Apply(ctx, c.policy, func(ctx context.Context, in control.Instance) error {
		err := rig.Expect(verdicts)(ctx, in)
		if err == nil && c.open > 0 {
			err = openPortFlows(b.XDP.In.Name, c.open)
		}
		if err == nil && c.sampled {
			err = readSamples(ctx, b, in)
		}
		return err
	})
	if err == nil {
		b.Own(a.Program)
	}
	return a, err
}

// openPortFlows has flows begin here, and be answered, in the table that the program goes on with.
func openPortFlows(device string, n int) error {
	return rig.BothSides(device, func(xdp, egress *ebpf.Program) error {
		return rig.OpenFlows(xdp, egress, netip.AddrPortFrom(rig.Server4, openPort), n)
	})
}

// readSamples reads the samples of all packets until the builder is closed, as the daemon does.
func readSamples(ctx context.Context, b *rig.Builder, in control.Instance) error {
	h, err := in.Handout(ctx, true)
	if err != nil {
		return err
	}
	s, err := h.Open()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var reading sync.WaitGroup
	reading.Go(func() {
		for err := error(nil); err == nil; {
			_, err = s.Read(ctx)
		}
	})
	b.Owned = append(b.Owned, func() error {
		stop()
		reading.Wait()
		return s.Close()
	})
	return nil
}

func addIptables(ctx context.Context, b *rig.Builder) error {
	for _, row := range []struct {
		name, label, table, chain string
		rules                     int
	}{
		{"iptables/raw", "iptables: raw PREROUTING, the first rule", "raw", "PREROUTING", 0},
		{"iptables/raw/rules=5", "iptables: raw PREROUTING, after 5 rules", "raw", "PREROUTING", 5},
		{"iptables/filter", "iptables: filter INPUT, the first rule", "filter", "INPUT", 0},
	} {
		err := b.Installed(row.name, row.label, func(at *rig.Site) error {
			script := rig.IptablesScript(row.table, row.chain, row.rules)
			_, _, err := rig.RunTool(ctx, at.Server, strings.NewReader(script), "iptables-legacy-restore")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func addNft(ctx context.Context, b *rig.Builder) error {
	for _, row := range []struct {
		name, label string
		hook        rig.NftHook
		rules       int
	}{
		{"nft/ingress", "nft: ingress hook, the first rule", rig.NftIngress, 0},
		{"nft/raw", "nft: raw prerouting, the first rule", rig.NftRaw, 0},
		{"nft/ingress/rules=20", "nft: ingress hook, after 20 rules", rig.NftIngress, 20},
		{"nft/ingress/rules=500", "nft: ingress hook, after 500 rules", rig.NftIngress, 500},
	} {
		err := b.Installed(row.name, row.label, func(at *rig.Site) error {
			script := row.hook.Script(at, rig.NftRules(row.rules)+"drop\n", "")
			_, _, err := rig.RunTool(ctx, at.Server, strings.NewReader(script), "nft", "-f", "-")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
