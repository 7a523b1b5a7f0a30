// SPDX-License-Identifier: Apache-2.0

// This file is the experiment payload: searches for texts and bytes in packets.

package experiment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// runPayload measures the cost of searching packets for contents that they do not have, before they are dropped.
func runPayload(ctx context.Context, s *rig.Session) error {
	return rig.With(ctx, s, func(b *rig.Builder) error {
		b.Flow = rig.Flood(rig.RandomHosts(rig.MaxSources).Listed)
		b.Flow.Payload = []byte(rig.RandomText(rand.New(rand.NewPCG(rig.Seed, 128)), 128-20-8))
		b.Table.Title = "payload: 128-byte UDP packets from random sources, in which nothing is found, dropped on one core"
		b.Table.Notes = slices.Clone(payloadNotes)
		if err := b.Limits(); err != nil {
			return err
		}
		for _, r := range guardRows() {
			row := &rig.Row{Name: r.name, Label: r.label, Goals: rig.XRival(payloadRival, payloadTimes[r.name])}
			if r.name == payloadRival {
				b.Table.Rival = row
			}
			if err := b.AddGuarded(ctx, row, r.guard, defaultDrops); err != nil {
				return err
			}
		}
		return b.Measure(ctx)
	})
}

// payloadNotes describe the choices of the experiment.
var payloadNotes = []string{
	"A packet of 128 bytes is one whose IP header says so; its payload is 100 random small letters. The rule is for UDP to",
	"port 53, and the next rule drops all. 64 texts are 64 rules of iptables, and one of Floodwall. Fixed: four bytes at the",
	"beginning of the payload. Floodwall's policies have the standard checks. It searches with kmp, as bm misses a text that",
	"lies in two pieces of a packet's memory, and by iptables-nft where that is the default, as on Debian.",
}

// magic is four bytes that no packet of the bench starts with.
const magic = "de ad be ef"

// defaultDrops has a packet that no rule matches, with its verdict.
var defaultDrops = map[string]string{rig.FloodPacket(rig.Addr4(0x01020304)): defaultDropped}

// guardRow is a row of a guard.
type guardRow struct {
	name, label string
	guard       rig.Guard
}

// payloadTimes are the rates that rows must reach, as multiples of the rival's rate.
var payloadTimes = map[string]float64{"floodwall/xdp/string/n=1": rig.LeastString, "floodwall/xdp/string/n=64": rig.LeastStrings}

// payloadRival is the row that these rates are compared with.
const payloadRival = "iptables/string/bm/n=1"

// guardRows returns the rows: searches for texts anywhere, and for four bytes at a fixed place.
func guardRows() (all []guardRow) {
	iptables := func(form, rules string) rig.Guard {
		return rig.Guard{Form: form, Iptables: rig.RawRules(rules + "-A PREROUTING -j DROP\n")}
	}
	own := func(target, name, label, policy string) {
		all = append(all, guardRow{"floodwall/" + target + "/" + name, "floodwall, " + target + ": " + label, rig.Floodwall(target, policy)})
	}
	all = append(all, guardRow{"iptables/raw", "iptables: no search", iptables(rig.IptablesLegacy, "")})
	for _, n := range []int{1, rig.MostStrings} {
		for _, algo := range []string{"bm", "kmp"} {
			all = append(all, guardRow{
				fmt.Sprintf("iptables/string/%s/n=%d", algo, n), "iptables " + algo + report.Choice(n == 1, "", ", 64 texts"),
				iptables(rig.IptablesLegacy, rig.StringRules(algo, rig.Texts(n))),
			})
		}
	}
	many := rig.StringRules("kmp", rig.Texts(rig.MostStrings))
	all = append(all, guardRow{"iptables-nft/string/kmp/n=64", "iptables-nft kmp, 64 texts", iptables(rig.IptablesNft, many)})
	for _, n := range []int{1, rig.MostStrings} {
		policy := "default: drop\nrules:\n" + rig.StringPolicy(rig.Texts(n))
		own("xdp", fmt.Sprintf("string/n=%d", n), report.Things(n, "text", "texts"), policy)
		own("iptables", fmt.Sprintf("string/n=%d", n), report.Things(n, "text", "texts"), policy)
	}
	hex := strings.ReplaceAll(magic, " ", "")
	// The payload starts 8 bytes after the IP header. The first byte of the header has its length.
	u32 := fmt.Sprintf("-A PREROUTING -p udp --dport 53 -m u32 --u32 0>>22&0x3C@8=0x%s -j DROP\n", hex)
	nft := fmt.Sprintf("udp dport 53 @th,64,32 0x%s drop\ndrop\n", hex)
	all = append(all,
		guardRow{"iptables/u32", "iptables u32, fixed", iptables(rig.IptablesLegacy, u32)},
		guardRow{"nft/ingress/fixed", "nft raw payload, fixed, ingress hook", rig.Guard{Nft: rig.NftIngress.Script(nft, "")}},
		guardRow{"nft/raw/fixed", "nft raw payload, fixed, raw prerouting", rig.Guard{Nft: rig.NftRaw.Script(nft, "")}})
	for _, target := range targets {
		own(target, "fixed", "fixed", "default: drop\nrules:\n  - {name: fixed, proto: udp, port: 53, payload: {at: {offset: 0, bytes: \"|"+magic+"|\"}}, then: drop}\n")
	}
	return all
}
