package experiment

import (
	"context"
	"errors"
	"fmt"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// The rule, in all languages. In raw, and in XDP, it has to ask whether the destination is local.
const (
	iptablesMatch   = "-s 198.51.100.1 -p udp --dport 5001"
	nftMatch        = "ip saddr 198.51.100.1 udp dport 5001"
	placementPolicy = "default: pass\nchecks: off\nplacement: %s\nrules:\n" +
		"  - {name: flood, from: 198.51.100.1, to: local, proto: udp, port: 5001, then: drop}\n"
)

// What iptables is given. Both of its tables are there in any case, as on the article's router.
const (
	rawRules = "*raw\n-A PREROUTING " + iptablesMatch + " -m addrtype --dst-type LOCAL -j DROP\n-A PREROUTING -j CT --notrack\nCOMMIT\n" +
		"*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\nCOMMIT\n"
	filterRules = "*raw\n-A PREROUTING -j CT --notrack\nCOMMIT\n*filter\n-A INPUT " + iptablesMatch + " -j DROP\nCOMMIT\n"
)

// untracked has conntrack leave all packets alone, after what is in raw.
const untracked = "table inet untracked {\nchain prerouting {\n" +
	"type filter hook prerouting priority -299; policy accept;\nnotrack\n}\n}\n"

// What nft is given: chains of one table.
const (
	nftIngress = `table netdev bench {
chain ingress {
type filter hook ingress device "%s" priority 0; policy accept;
` + nftMatch + ` fib daddr type local drop
}
}
`
	nftRaw = `table inet bench {
chain prerouting {
type filter hook prerouting priority raw; policy accept;
` + nftMatch + ` fib daddr type local drop
}
}
`
	nftFilter = `table inet bench {
chain input {
type filter hook input priority filter; policy accept;
` + nftMatch + ` drop
}
}
`
)

// byIptables has iptables take rules at a router of its own.
func byIptables(script string) func(context.Context, *placementBuilder, *way) error {
	return func(ctx context.Context, b *placementBuilder, w *way) (err error) {
		if w.subject.Site, err = b.router(); err != nil {
			return err
		}
		return rig.Restoring(script)(ctx, w.subject.Site)
	}
}

// byNft has nft take a script, with the device in it if it is asked for, at a router of its own.
func byNft(script string) func(context.Context, *placementBuilder, *way) error {
	return func(ctx context.Context, b *placementBuilder, w *way) (err error) {
		if w.subject.Site, err = b.router(); err != nil {
			return err
		}
		text := script
		if script == nftIngress {
			text = fmt.Sprintf(script, w.subject.Site.In.Name)
		}
		return b.InstallNft(ctx, w.subject.Site, untracked+text)
	}
}

// byFloodwall applies the policy on nftables, at a router of its own.
func byFloodwall(stage string) func(context.Context, *placementBuilder, *way) error {
	return func(ctx context.Context, b *placementBuilder, w *way) (err error) {
		if w.subject.Site, err = b.router(); err != nil {
			return err
		}
		if err := b.InstallNft(ctx, w.subject.Site, untracked); err != nil {
			return err
		}
		_, err = b.Hold(ctx, w.subject.Site, fmt.Sprintf(placementPolicy, stage), "nftables")
		return err
	}
}

// onBare adds the router on which nothing is installed: without more for no target, else with Floodwall's program, which
// is attached while it is measured.
func onBare(target string) func(context.Context, *placementBuilder, *way) error {
	return func(ctx context.Context, b *placementBuilder, w *way) (err error) {
		if b.XDP == nil {
			if b.XDP, err = b.router(); err != nil {
				return err
			}
			if err := b.InstallNft(ctx, b.XDP, untracked); err != nil {
				return err
			}
		}
		w.subject.Site = b.XDP
		if target == "" {
			return nil
		}
		a, err := b.XDP.Apply(ctx, fmt.Sprintf(placementPolicy, "earliest"), nil)
		if err == nil {
			w.subject.Program = b.Own(a.Program)
		}
		return err
	}
}

// check sends some packets of each kind, and returns an error when not all and only those that are to be forwarded are.
// What does something else is not worth measuring.
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
