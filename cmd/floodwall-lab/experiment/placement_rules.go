package experiment

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// The rule in the languages of all tools. In raw, and on XDP, it must test whether the destination is local.
const (
	iptablesMatch   = "-s 198.51.100.1 -p udp --dport 5001"
	nftMatch        = "ip saddr 198.51.100.1 udp dport 5001"
	placementPolicy = "default: pass\nchecks: off\nplacement: %s\nrules:\n" +
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

// The input for nft: chains of one table.
const (
	nftIngress = `table netdev bench {
chain ingress {
type filter hook ingress device "{in}" priority 0; policy accept;
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

// byIptables, byNft and byFloodwall return the rule in a tool, on a router whose conntrack ignores all packets.
func byIptables(script string) rig.Guard { return rig.Guard{Iptables: script} }

func byNft(script string) rig.Guard { return rig.Guard{Nft: untracked + script} }

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
