// This file is the experiment of that name: texts and bytes looked for in packets.

package experiment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// runPayload measures what it costs to look into packets for what is not there, before they are dropped.
func runPayload(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) error {
		b := &rig.Builder{Session: s, Lab: l}
		defer b.Close()
		b.Flow = rig.Flood(rig.RandomHosts(rig.MaxSources).Listed)
		b.Flow.Payload = []byte(rig.RandomText(rand.New(rand.NewPCG(rig.Seed, 128)), 128-20-8))
		b.Table.Title = "payload: 128-byte UDP packets from random sources, in which nothing is found, dropped on one core"
		b.Table.Notes = append([]string(nil), payloadNotes...)
		if err := b.Limits(); err != nil {
			return err
		}
		for _, add := range []func(context.Context, *rig.Builder) error{addStringTools, addSearching, addFixedTools, addFixed} {
			if err := add(ctx, b); err != nil {
				return err
			}
		}
		return b.Measure(ctx)
	})
}

// payloadNotes are the choices made.
var payloadNotes = []string{
	"A packet of 128 bytes is one whose IP header says so; its payload is 100 random small letters. The rule is for UDP to",
	"port 53, and the next rule drops all. 64 texts are 64 rules of iptables, and one of Floodwall. Fixed: four bytes at the",
	"beginning of the payload. Floodwall's policies have the standard checks. It searches with kmp, as bm misses a text that",
	"lies in two pieces of a packet's memory, and by iptables-nft where that is the default, as on Debian.",
}

// magic is four bytes that no packet of the bench begins with.
const magic = "de ad be ef"

// rawRow adds a row for rules of iptables before one that drops all.
func rawRow(ctx context.Context, b *rig.Builder, name, label, rules string) (*rig.Rate, error) {
	return formRow(ctx, b, rig.IptablesLegacy, "iptables/"+name, label, rules)
}

// formRow is rawRow for a form of iptables.
func formRow(ctx context.Context, b *rig.Builder, form, name, label, rules string) (*rig.Rate, error) {
	err := b.Installed(name, label, func(at *rig.Site) error {
		return rig.RestoringBy(form, "*raw\n"+rules+"-A PREROUTING -j DROP\nCOMMIT\n")(ctx, at)
	})
	if err != nil {
		return nil, err
	}
	return b.Table.Rows[len(b.Table.Rows)-1], nil
}

// addStringTools adds what searches with iptables, the first of which is the rival of the rows after it.
func addStringTools(ctx context.Context, b *rig.Builder) error {
	if _, err := rawRow(ctx, b, "raw", "iptables: no search", ""); err != nil {
		return err
	}
	for _, n := range []int{1, rig.MostStrings} {
		for _, algo := range []string{"bm", "kmp"} {
			label := "iptables " + algo + report.Choice(n == 1, "", ", 64 texts")
			row, err := rawRow(ctx, b, fmt.Sprintf("string/%s/n=%d", algo, n), label, rig.StringRules(algo, rig.Texts(n)))
			if err != nil {
				return err
			}
			if b.Table.Rival == nil {
				b.Table.Rival = row
			}
		}
	}
	many := rig.StringRules("kmp", rig.Texts(rig.MostStrings))
	if _, err := formRow(ctx, b, rig.IptablesNft, "iptables-nft/string/kmp/n=64", "iptables-nft kmp, 64 texts", many); err != nil {
		return err
	}
	return nil
}

// addSearching adds Floodwall's rows with texts.
func addSearching(ctx context.Context, b *rig.Builder) error {
	for _, c := range []struct {
		n     int
		times float64
	}{{1, rig.LeastString}, {rig.MostStrings, rig.LeastStrings}} {
		name, policy := fmt.Sprintf("string/n=%d", c.n), "default: drop\nrules:\n"+rig.StringPolicy(rig.Texts(c.n))
		label := report.Things(c.n, "text", "texts")
		row, err := xdpRow(ctx, b, name, label, policy)
		if err != nil {
			return err
		}
		row.Times = c.times
		if err := heldRow(ctx, b, name, label, policy, "iptables"); err != nil {
			return err
		}
	}
	return nil
}

// addFixedTools adds what looks at a fixed place with iptables and nft.
func addFixedTools(ctx context.Context, b *rig.Builder) error {
	hex := strings.ReplaceAll(magic, " ", "")
	// The payload begins 8 bytes after the IP header, whose length is in its first byte.
	u32 := fmt.Sprintf("-A PREROUTING -p udp --dport 53 -m u32 --u32 0>>22&0x3C@8=0x%s -j DROP\n", hex)
	if _, err := rawRow(ctx, b, "u32", "iptables u32, fixed", u32); err != nil {
		return err
	}
	for _, hook := range []struct {
		name, label string
		rig.NftHook
	}{{"ingress", "ingress hook", rig.NftIngress}, {"raw", "raw prerouting", rig.NftRaw}} {
		err := b.Installed("nft/"+hook.name+"/fixed", "nft raw payload, fixed, "+hook.label, func(at *rig.Site) error {
			script := hook.Script(at, fmt.Sprintf("udp dport 53 @th,64,32 0x%s drop\ndrop\n", hex), "")
			_, _, err := rig.RunTool(ctx, at.Server, strings.NewReader(script), "nft", "-f", "-")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addFixed adds Floodwall's rows with a fixed place, on each target.
func addFixed(ctx context.Context, b *rig.Builder) error {
	policy := "default: drop\nrules:\n  - {name: fixed, proto: udp, port: 53, payload: {at: {offset: 0, bytes: \"|" + magic + "|\"}}, then: drop}\n"
	if _, err := xdpRow(ctx, b, "fixed", "fixed", policy); err != nil {
		return err
	}
	for _, target := range []string{"nftables", "iptables"} {
		if err := heldRow(ctx, b, "fixed", "fixed", policy, target); err != nil {
			return err
		}
	}
	return nil
}

// xdpRow adds a row for a policy's XDP program, which is attached only while it is measured, after a look at whether it
// drops what it should not find anything in.
func xdpRow(ctx context.Context, b *rig.Builder, name, label, policy string) (*rig.Rate, error) {
	b.Steps.Show("applying %s", label)
	a, err := b.XDP.Apply(ctx, policy, rig.Expect(map[string]string{rig.FloodPacket(rig.Addr4(0x01020304)): "default"}))
	if err != nil {
		return nil, fmt.Errorf("floodwall, xdp, %s: %w", label, err)
	}
	return b.Add(&rig.Rate{
		Name: "floodwall/xdp/" + name, Label: "floodwall, xdp: " + label,
		Subject: rig.Subject{Site: b.XDP, Program: b.Own(a.Program)},
	}), nil
}

// heldRow adds a row for a policy that is applied on another target and stays.
func heldRow(ctx context.Context, b *rig.Builder, name, label, policy, target string) error {
	err := b.Installed("floodwall/"+target+"/"+name, "floodwall, "+target+": "+label, func(at *rig.Site) error {
		_, err := b.Hold(ctx, at, policy, target)
		return err
	})
	if err != nil {
		return fmt.Errorf("floodwall, %s: %w", target, err)
	}
	return nil
}
