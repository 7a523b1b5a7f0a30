package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/floodwall/floodwall/internal/lab"
)

// payload measures what it costs to look into packets for what is not there, before they are dropped.
func payload(ctx context.Context, s *session) error {
	return inLab(ctx, func(l *lab.Lab) error {
		b := &builder{session: s, lab: l}
		defer b.close()
		b.flow = flood(randomHosts(maxSources).listed)
		b.flow.Payload = []byte(randomText(rand.New(rand.NewPCG(seed, 128)), 128-20-8))
		b.table.title = "payload: 128-byte UDP packets from random sources, in which nothing is found, dropped on one core"
		b.table.notes = append([]string(nil), payloadNotes...)
		if err := b.limits(); err != nil {
			return err
		}
		for _, add := range []func(context.Context) error{b.addStringTools, b.addSearching, b.addFixedTools, b.addFixed} {
			if err := add(ctx); err != nil {
				return err
			}
		}
		return b.measure(ctx)
	})
}

// payloadNotes are the choices made.
var payloadNotes = []string{
	"A packet of 128 bytes is one whose IP header says so; its payload is 100 random small letters. The rule is for UDP to",
	"port 53, and the next rule drops all. 64 texts are 64 rules of iptables, and one of Floodwall. Fixed: four octets at the",
	"beginning of the payload. Floodwall's policies have the standard checks.",
}

// magic is four octets that no packet of the bench begins with.
const magic = "de ad be ef"

// rawRow adds a row for rules of iptables before one that drops all.
func (b *builder) rawRow(ctx context.Context, name, label, rules string) (*rate, error) {
	err := b.installed("iptables/"+name, label, func(at *site) error {
		return raw(rules+"-A PREROUTING -j DROP\n")(ctx, at)
	})
	if err != nil {
		return nil, err
	}
	return b.table.rows[len(b.table.rows)-1], nil
}

// addStringTools adds what searches with iptables, the first of which is the rival of the rows after it.
func (b *builder) addStringTools(ctx context.Context) error {
	if _, err := b.rawRow(ctx, "raw", "iptables: no search", ""); err != nil {
		return err
	}
	for _, n := range []int{1, mostStrings} {
		for _, algo := range []string{"bm", "kmp"} {
			label := "iptables " + algo + choice(n == 1, "", ", 64 texts")
			row, err := b.rawRow(ctx, fmt.Sprintf("string/%s/n=%d", algo, n), label, stringRules(algo, searched(n)))
			if err != nil {
				return err
			}
			if b.table.rival == nil {
				b.table.rival = row
			}
		}
	}
	return nil
}

// addSearching adds Floodwall's rows with texts.
func (b *builder) addSearching(ctx context.Context) error {
	for _, c := range []struct {
		n     int
		times float64
	}{{1, leastString}, {mostStrings, leastStrings}} {
		name, policy := fmt.Sprintf("string/n=%d", c.n), "default: drop\nrules:\n"+stringPolicy(searched(c.n))
		label := things(c.n, "text", "texts")
		row, err := b.xdpRow(ctx, name, label, policy)
		if err != nil {
			return err
		}
		row.times = c.times
		if err := b.heldRow(ctx, name, label, policy, "iptables"); err != nil {
			return err
		}
	}
	return nil
}

// addFixedTools adds what looks at a fixed place with iptables and nft.
func (b *builder) addFixedTools(ctx context.Context) error {
	hex := strings.ReplaceAll(magic, " ", "")
	// The payload begins 8 octets after the IP header, whose length is in its first octet.
	u32 := fmt.Sprintf("-A PREROUTING -p udp --dport 53 -m u32 --u32 0>>22&0x3C@8=0x%s -j DROP\n", hex)
	if _, err := b.rawRow(ctx, "u32", "iptables u32, fixed", u32); err != nil {
		return err
	}
	for _, hook := range []struct {
		name, label string
		nftHook
	}{{"ingress", "ingress hook", nftIngress}, {"raw", "raw prerouting", nftRaw}} {
		err := b.installed("nft/"+hook.name+"/fixed", "nft raw payload, fixed, "+hook.label, func(at *site) error {
			script := hook.script(at, fmt.Sprintf("udp dport 53 @th,64,32 0x%s drop\ndrop\n", hex), "")
			_, _, err := runTool(ctx, at.server, strings.NewReader(script), "nft", "-f", "-")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addFixed adds Floodwall's rows with a fixed place, on each target.
func (b *builder) addFixed(ctx context.Context) error {
	policy := "default: drop\nrules:\n  - {name: fixed, proto: udp, port: 53, payload: {at: {offset: 0, bytes: \"|" + magic + "|\"}}, then: drop}\n"
	if _, err := b.xdpRow(ctx, "fixed", "fixed", policy); err != nil {
		return err
	}
	for _, target := range []string{"nftables", "iptables"} {
		if err := b.heldRow(ctx, "fixed", "fixed", policy, target); err != nil {
			return err
		}
	}
	return nil
}

// xdpRow adds a row for a policy's XDP program, which is attached only while it is measured, after a look at whether it
// drops what it should not find anything in.
func (b *builder) xdpRow(ctx context.Context, name, label, policy string) (*rate, error) {
	b.progress.show("applying %s", label)
	a, err := b.xdp.apply(ctx, policy, expect(map[string]string{floodPacket(addr4(0x01020304)): "default"}))
	if err != nil {
		return nil, fmt.Errorf("floodwall, xdp, %s: %w", label, err)
	}
	return b.add(&rate{name: "floodwall/xdp/" + name, label: "floodwall, xdp: " + label, subject: subject{b.xdp, b.own(a.program)}}), nil
}

// heldRow adds a row for a policy that is applied on another target and stays.
func (b *builder) heldRow(ctx context.Context, name, label, policy, target string) error {
	err := b.installed("floodwall/"+target+"/"+name, "floodwall, "+target+": "+label, func(at *site) error {
		_, err := b.hold(ctx, at, policy, target)
		return err
	})
	if err != nil {
		return fmt.Errorf("floodwall, %s: %w", target, err)
	}
	return nil
}
