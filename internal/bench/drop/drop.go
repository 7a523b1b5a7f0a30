// Package drop is the experiment of that name: dropping packets after rules that do not match.
package drop

import (
	"context"
	"fmt"
	"strings"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/bench/lists"
	"github.com/floodwall/floodwall/internal/bench/report"
	"github.com/floodwall/floodwall/internal/bench/rig"
	"github.com/floodwall/floodwall/internal/bench/tools"
	"github.com/floodwall/floodwall/internal/lab"
)

// Run measures what rules cost that do not match, before the packet is dropped.
func Run(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) error {
		b := &rig.Builder{Session: s, Lab: l}
		defer b.Close()
		b.Flow = rig.Flood(lists.RandomHosts(lists.MaxSources).Listed)
		if err := b.Limits(); err != nil {
			return err
		}
		for _, add := range []func(context.Context, *rig.Builder) error{addIdle, addFloodwall, addIptables, addNft} {
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

// idleInstructions is about as many as a program executes that parses and checks a packet.
const idleInstructions = 200

// addIdle adds a program that reads an octet and then does nothing for a while. It shows what the length alone costs: a
// processor that waits for a frame sees fewer of the next packets ahead.
func addIdle(_ context.Context, b *rig.Builder) error {
	ins := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Imm(asm.R0, rig.XDPDrop),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 1),
		asm.JGT.Reg(asm.R4, asm.R3, "end"),
		asm.LoadMem(asm.R5, asm.R2, 0, asm.Byte),
		asm.JEq.Imm(asm.R5, 0xff, "end"),
	}
	for i := range idleInstructions {
		ins = append(ins, asm.Mov.Imm(asm.R4, int32(i)))
	}
	p, err := rig.LoadInstructions("idle", append(ins, asm.Return().WithSymbol("end"))...)
	if err != nil {
		return err
	}
	b.Add(&rig.Rate{
		Name:    "one-octet/idle",
		Label:   fmt.Sprintf("the same, and %d instructions that do nothing", idleInstructions),
		Subject: rig.Subject{Site: b.XDP, Program: b.Own(p)},
	})
	return nil
}

func addFloodwall(ctx context.Context, b *rig.Builder) error {
	builtIn := 0 // rules that every program has, whatever the policy
	check := rig.Expect(map[string]string{rig.FloodPacket(lists.Addr4(0x01020304)): "default"})
	for _, c := range lists.RuleCounts {
		b.Steps.Show("applying %s rules", report.CountText(c.Rules))
		a, err := b.XDP.Apply(ctx, lists.RulesPolicy(c.Rules), check)
		if err != nil {
			return err
		}
		label := fmt.Sprintf("floodwall: %s rules that do not match", report.CountText(c.Rules))
		if c.Rules == 0 {
			builtIn = a.Rules
		}
		if left := a.Rules - builtIn; left != c.Rules {
			label += fmt.Sprintf(" (merged to %s)", report.CountText(left))
		}
		b.Add(&rig.Rate{
			Name: fmt.Sprintf("floodwall/rules=%d", c.Rules), Label: label, Subject: rig.Subject{Site: b.XDP, Program: b.Own(a.Program)},
			Least: c.Least, Extra: []lab.Metric{{Value: a.Seconds, Unit: "apply-s"}},
		})
	}
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
			script := lists.IptablesScript(row.table, row.chain, row.rules)
			_, _, err := tools.Run(ctx, at.Server, strings.NewReader(script), "iptables-legacy-restore")
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
			script := row.hook.Script(at, lists.NftRules(row.rules)+"drop\n", "")
			_, _, err := tools.Run(ctx, at.Server, strings.NewReader(script), "nft", "-f", "-")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
