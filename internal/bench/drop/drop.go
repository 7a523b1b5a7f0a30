package bench

import (
	"context"
	"fmt"
	"strings"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/lab"
)

// drop measures what rules cost that do not match, before the packet is dropped.
func drop(ctx context.Context, s *session) error {
	return inLab(ctx, func(l *lab.Lab) error {
		b := &builder{session: s, lab: l}
		defer b.close()
		b.flow = flood(randomHosts(maxSources).listed)
		if err := b.limits(); err != nil {
			return err
		}
		for _, add := range []func(context.Context, *builder) error{addIdle, addFloodwall, addIptables, addNft} {
			if err := add(ctx, b); err != nil {
				return err
			}
		}
		b.table.rows = append(b.table.rows, &rate{
			name: "bpfilter", label: "bpfilter", missing: "not packaged in Debian; see github.com/facebook/bpfilter",
		})
		b.table.title = "drop: 64-byte UDP packets from random sources, dropped on one core"
		return b.measure(ctx)
	})
}

// idleInstructions is about as many as a program executes that parses and checks a packet.
const idleInstructions = 200

// addIdle adds a program that reads an octet and then does nothing for a while. It shows what the length alone costs: a
// processor that waits for a frame sees fewer of the next packets ahead.
func addIdle(_ context.Context, b *builder) error {
	ins := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Imm(asm.R0, xdpDrop),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 1),
		asm.JGT.Reg(asm.R4, asm.R3, "end"),
		asm.LoadMem(asm.R5, asm.R2, 0, asm.Byte),
		asm.JEq.Imm(asm.R5, 0xff, "end"),
	}
	for i := range idleInstructions {
		ins = append(ins, asm.Mov.Imm(asm.R4, int32(i)))
	}
	p, err := loadAsm("idle", append(ins, asm.Return().WithSymbol("end"))...)
	if err != nil {
		return err
	}
	b.add(&rate{
		name:  "one-octet/idle",
		label: fmt.Sprintf("the same, and %d instructions that do nothing", idleInstructions), subject: subject{b.xdp, b.own(p)},
	})
	return nil
}

func addFloodwall(ctx context.Context, b *builder) error {
	builtIn := 0 // rules that every program has, whatever the policy
	check := expect(map[string]string{floodPacket(addr4(0x01020304)): "default"})
	for _, c := range ruleCounts {
		b.progress.show("applying %s rules", countText(c.rules))
		a, err := b.xdp.apply(ctx, rulesPolicy(c.rules), check)
		if err != nil {
			return err
		}
		label := fmt.Sprintf("floodwall: %s rules that do not match", countText(c.rules))
		if c.rules == 0 {
			builtIn = a.Rules
		}
		if left := a.Rules - builtIn; left != c.rules {
			label += fmt.Sprintf(" (merged to %s)", countText(left))
		}
		b.add(&rate{
			name: fmt.Sprintf("floodwall/rules=%d", c.rules), label: label, subject: subject{b.xdp, b.own(a.program)},
			least: c.least, extra: []lab.Metric{{Value: a.seconds, Unit: "apply-s"}},
		})
	}
	return nil
}

func addIptables(ctx context.Context, b *builder) error {
	for _, row := range []struct {
		name, label, table, chain string
		rules                     int
	}{
		{"iptables/raw", "iptables: raw PREROUTING, the first rule", "raw", "PREROUTING", 0},
		{"iptables/raw/rules=5", "iptables: raw PREROUTING, after 5 rules", "raw", "PREROUTING", 5},
		{"iptables/filter", "iptables: filter INPUT, the first rule", "filter", "INPUT", 0},
	} {
		err := b.installed(row.name, row.label, func(at *site) error {
			script := iptablesScript(row.table, row.chain, row.rules)
			_, _, err := runTool(ctx, at.server, strings.NewReader(script), "iptables-legacy-restore")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func addNft(ctx context.Context, b *builder) error {
	for _, row := range []struct {
		name, label string
		hook        nftHook
		rules       int
	}{
		{"nft/ingress", "nft: ingress hook, the first rule", nftIngress, 0},
		{"nft/raw", "nft: raw prerouting, the first rule", nftRaw, 0},
		{"nft/ingress/rules=20", "nft: ingress hook, after 20 rules", nftIngress, 20},
		{"nft/ingress/rules=500", "nft: ingress hook, after 500 rules", nftIngress, 500},
	} {
		err := b.installed(row.name, row.label, func(at *site) error {
			script := row.hook.script(at, nftRules(row.rules)+"drop\n", "")
			_, _, err := runTool(ctx, at.server, strings.NewReader(script), "nft", "-f", "-")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
