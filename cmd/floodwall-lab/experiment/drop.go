// This file is the experiment drop: it measures dropped packets per second, by the number of rules, by checks and by the kind of packet.

package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// runDrop measures what policies cost until they have dropped a packet.
func runDrop(ctx context.Context, s *rig.Session) error {
	return rig.With(ctx, s, func(b *rig.Builder) error {
		b.Flow = rig.Flood(rig.RandomHosts(rig.MaxSources).Listed)
		b.Table.Title = "drop: 64-byte UDP packets from random sources, dropped on one core"
		if err := b.Limits(); err != nil {
			return err
		}
		if err := addFloodwall(ctx, b); err != nil {
			return err
		}
		for _, r := range append(dropTC(), dropTools()...) {
			if err := b.AddGuarded(ctx, &rig.Rate{Name: r.name, Label: r.label}, r.guard, nil); err != nil {
				return err
			}
		}
		b.Add(&rig.Rate{Name: "bpfilter", Label: "bpfilter", Missing: "not packaged in Debian; see github.com/facebook/bpfilter"})
		return b.Measure(ctx)
	})
}

// addFloodwall adds the rows of Floodwall's policies.
func addFloodwall(ctx context.Context, b *rig.Builder) error {
	builtIn := 0 // the rules of every program, whatever the policy
	applied := map[string]*rig.Applied{}
	resting := time.Now() // until then, the protections of unloaded policies drop nothing
	for _, c := range cases(b.Quick) {
		name := "floodwall/" + c.name
		if !b.Wants(name) {
			continue
		}
		b.Steps.Show("applying %s", c.label)
		// The key of a program includes more than the policy. After SYNs, segments cost more, because SYNs leave records of their cookies. With open
		// flows, packets cost more.
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

// apply loads the program for a case.
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

// openPortFlows opens n flows from one port of this host and answers them. It uses the table that the program continues to use.
func openPortFlows(device string, n int) error {
	return rig.BothSides(device, func(xdp, egress *ebpf.Program) error {
		return rig.OpenFlows(xdp, egress, netip.AddrPortFrom(rig.Server4, openPort), n)
	})
}

// readSamples reads the samples of all packets, as the daemon does, until the builder is closed.
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

// dropTC returns the rows of programs at tc: one that drops all, and the policies of Floodwall's rows.
func dropTC() []guardRow {
	all := []guardRow{{"tc-drop", "a tc program that drops", rig.Guard{TC: rig.DropTC}}}
	for _, n := range []int{0, someRules, 10_000} {
		label := "floodwall, tc: " + report.Things(n, "rule that does not match", "rules that do not match") + ", checks: off"
		all = append(all, guardRow{fmt.Sprintf("floodwall/tc/rules=%d/off", n), label, rig.Floodwall("tc", noReplies+"checks: off\n"+rig.RulesPolicy(n))})
	}
	return all
}

// dropTools returns the rows of the tools of the system.
func dropTools() (all []guardRow) {
	for _, r := range []struct {
		name, label, table, chain string
		rules                     int
	}{
		{"iptables/raw", "iptables: raw PREROUTING, the first rule", "raw", "PREROUTING", 0},
		{"iptables/raw/rules=5", "iptables: raw PREROUTING, after 5 rules", "raw", "PREROUTING", 5},
		{"iptables/filter", "iptables: filter INPUT, the first rule", "filter", "INPUT", 0},
	} {
		all = append(all, guardRow{name: r.name, label: r.label, guard: rig.Guard{Iptables: rig.IptablesScript(r.table, r.chain, r.rules)}})
	}
	for _, r := range []struct {
		name, label string
		hook        rig.NftHook
		rules       int
	}{
		{"nft/ingress", "nft: ingress hook, the first rule", rig.NftIngress, 0},
		{"nft/raw", "nft: raw prerouting, the first rule", rig.NftRaw, 0},
		{"nft/ingress/rules=20", "nft: ingress hook, after 20 rules", rig.NftIngress, 20},
		{"nft/ingress/rules=500", "nft: ingress hook, after 500 rules", rig.NftIngress, 500},
	} {
		all = append(all, guardRow{name: r.name, label: r.label, guard: rig.Guard{Nft: r.hook.Script(rig.NftRules(r.rules)+"drop\n", "")}})
	}
	return all
}
