// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/engine/control"
)

// tool is a program that can limit sources.
type tool struct {
	name, label string
	random      bool // only for the first case
	install     func(context.Context, *rig.Builder, *limiter) error
}

var allTools = []tool{
	{"floodwall/xdp", "floodwall, xdp", false, floodwallLimit("xdp", "")},
	{"floodwall/nftables", "floodwall, nftables", false, floodwallLimit("nftables", "")},
	{"floodwall/nftables-unchecked", "floodwall, nftables, checks off", true, floodwallLimit("nftables", unchecked)},
	{"floodwall/iptables", "floodwall, iptables", false, floodwallLimit("iptables", "")},
	{"floodwall/iptables-unchecked", "floodwall, iptables, checks off", true, floodwallLimit("iptables", unchecked)},
	{"iptables", "iptables hashlimit", false, hashlimit(rig.IptablesLegacy, "")},
	{"iptables-nft", "iptables-nft hashlimit", true, hashlimit(rig.IptablesNft, "")},
	{"iptables-nft-checks", "iptables-nft hashlimit, behind the checks", true, hashlimit(rig.IptablesNft, iptablesChecks)},
	{"nft", "nft dynamic set", false, nftMeter("")},
	{"nft-checks", "nft dynamic set, behind the checks", true, nftMeter(nftChecks)},
	{"bpf-lru", "BPF LRU map, a program with nothing else", false, lruLimit},
}

// unchecked is the line of a policy that turns all checks off.
const unchecked = "checks: off\n"

// floodwallLimit applies a policy, which stays in force. The text more precedes the lines of the policy.
func floodwallLimit(target, more string) func(context.Context, *rig.Builder, *limiter) error {
	return func(ctx context.Context, b *rig.Builder, l *limiter) error {
		at := l.Subject.Site
		in, err := b.Hold(ctx, at, more+l.of.policy(), rig.TargetOptions(target))
		if err != nil {
			return err
		}
		status := func(ctx context.Context) (s *control.Status, err error) {
			err = at.Server.Do(func() (err error) {
				s, err = in.Status(ctx)
				return err
			})
			return s, err
		}
		l.counts = func(ctx context.Context) (p passage, err error) {
			s, err := status(ctx)
			if err == nil {
				p = ruleCounts(s)
			}
			return p, err
		}
		if target != "xdp" {
			return nil
		}
		l.entries = func(ctx context.Context) (n int, err error) {
			s, err := status(ctx)
			if err == nil {
				for _, limit := range s.Limits {
					n += limit.Debts
				}
			}
			return n, err
		}
		l.bytes, err = programMemory(at)
		return err
	}
}

// programMemory returns the size in bytes of the kernel memory that the maps of the site's attached program use.
func programMemory(s *rig.Site) (bytes uint64, err error) {
	err = s.Server.Do(func() error {
		p, err := rig.AttachedProgram(s.In.Name)
		if err != nil {
			return err
		}
		defer p.Close()
		bytes, err = rig.MapMemory(p)
		return err
	})
	return bytes, err
}

// ruleCounts returns the counters of the rules of a case's policy.
func ruleCounts(s *control.Status) (p passage) {
	for _, r := range s.Rules {
		switch r.Name {
		case "limit":
			p.over = r.Packets
		case "heavy":
			p.heavy = r.Packets
		case "light":
			p.light = r.Packets
		}
	}
	return p
}

// hashlimit sets the limit with an implementation of iptables, after the rules in before.
func hashlimit(form, before string) func(context.Context, *rig.Builder, *limiter) error {
	return func(ctx context.Context, b *rig.Builder, l *limiter) error {
		at, c := l.Subject.Site, &l.of
		const name = "bench"
		rules := fmt.Sprintf("-A PREROUTING -p udp -m hashlimit --hashlimit-above %d/sec --hashlimit-burst %d --hashlimit-mode srcip"+
			" --hashlimit-srcmask %d --hashlimit-name %s -j DROP\n", c.rate, burst, c.per, name) +
			fmt.Sprintf("-A PREROUTING -p udp --dport %d -j DROP\n-A PREROUTING -p udp -j DROP\n", heavyPort)
		if err := b.Guard(ctx, at, rig.Guard{Form: form, Iptables: rig.RawRules(before + rules)}); err != nil {
			return err
		}
		l.counts = func(ctx context.Context) (passage, error) {
			out, _, err := rig.RunTool(ctx, at.Server, nil, form+"-save", "-c", "-t", "raw")
			if err != nil {
				return passage{}, err
			}
			return countsOf(countsAfter(out, "["))
		}
		l.entries = func(context.Context) (n int, err error) {
			err = at.Server.Do(func() error {
				held, err := os.ReadFile("/proc/thread-self/net/ipt_hashlimit/" + name)
				n = strings.Count(string(held), "\n")
				return err
			})
			return n, err
		}
		return nil
	}
}

// nftMeter sets the limit with nft, after the rules in before. As in the wiki of nft, packets add entries to a set.
func nftMeter(before string) func(context.Context, *rig.Builder, *limiter) error {
	return func(ctx context.Context, b *rig.Builder, l *limiter) error {
		at, c := l.Subject.Site, &l.of
		rules := fmt.Sprintf("meta l4proto udp update @held { ip saddr & %s limit rate over %d/second burst %d packets } counter drop\n",
			c.mask(), c.rate, burst) + fmt.Sprintf("udp dport %d counter drop\nmeta l4proto udp counter drop\n", heavyPort)
		script := rig.NftRaw.Script(before+rules, "set held {\ntype ipv4_addr\nsize 65536\nflags dynamic,timeout\ntimeout 1m\n}\n")
		if err := b.Guard(ctx, at, rig.Guard{Nft: script}); err != nil {
			return err
		}
		l.counts = func(ctx context.Context) (passage, error) {
			out, _, err := rig.RunTool(ctx, at.Server, nil, "nft", "list", "chain", "inet", "bench", "drops")
			if err != nil {
				return passage{}, err
			}
			return countsOf(countsAfter(out, "counter packets "))
		}
		l.entries = func(ctx context.Context) (int, error) {
			out, _, err := rig.RunTool(ctx, at.Server, nil, "nft", "list", "set", "inet", "bench", "held")
			return strings.Count(out, "expires"), err
		}
		return nil
	}
}

// lruEntries is the number of sources that the map of the plain program can store.
const lruEntries = 100_000

// lruLimit sets the limit with a plain BPF program.
func lruLimit(_ context.Context, b *rig.Builder, l *limiter) error {
	interval := uint64(1e9) / uint64(l.of.rate)
	mask := l.of.mask().As4()
	p, err := rig.LoadPeer(rig.Limit4, func(m *ebpf.MapSpec) { m.MaxEntries = lruEntries }, map[string]any{
		rig.Limit4Mask:     binary.NativeEndian.Uint32(mask[:]),
		rig.Limit4Interval: interval,
		rig.Limit4Burst:    burst * interval,
		rig.Limit4Heavy:    binary.NativeEndian.Uint16([]byte{0, heavyPort}),
	})
	if err != nil {
		return err
	}
	b.Owned = append(b.Owned, p.Set.Close, p.Counts.Close)
	l.Subject.Program = b.Own(p.Program)
	if l.bytes, err = rig.MapMemory(p.Program); err != nil {
		return err
	}
	l.counts = func(context.Context) (passage, error) {
		counts := make([]uint64, 3)
		for i := range counts {
			var perCPU []uint64
			if err := p.Counts.Lookup(uint32(i), &perCPU); err != nil {
				return passage{}, fmt.Errorf("counters: %w", err)
			}
			for _, n := range perCPU {
				counts[i] += n
			}
		}
		return countsOf(counts)
	}
	l.entries = func(context.Context) (n int, err error) {
		var prefix uint32
		var bucket [16]byte
		entries := p.Set.Iterate()
		for entries.Next(&prefix, &bucket) {
			n++
		}
		return n, entries.Err()
	}
	return nil
}

// countsAfter returns the number after each occurrence of a text.
func countsAfter(out, before string) (counts []uint64) {
	for _, part := range strings.Split(out, before)[1:] {
		end := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' })
		if n, err := strconv.ParseUint(part[:max(0, end)], 10, 64); err == nil {
			counts = append(counts, n)
		}
	}
	return counts
}

// countsOf returns the counters of the limit's rule and of the two rules after it. These are the last three counters. Other chains may have printed
// counters before them.
func countsOf(counts []uint64) (passage, error) {
	if len(counts) < 3 {
		return passage{}, errors.New("counters: there are not three rules")
	}
	last := counts[len(counts)-3:]
	return passage{over: last[0], heavy: last[1], light: last[2]}, nil
}

// The standard checks for each tool, as far as the tool supports them. There is a line for each check, in the order of Floodwall's checks. In this
// experiment, Floodwall's policies have these checks in addition to the limit.
var (
	nftChecks = dropEach(`ip6 nexthdr 0 ip6 length 0
ether saddr & 01:00:00:00:00:00 != 00:00:00:00:00:00
ip ttl 0
ip6 hoplimit 0
ip option lsrr exists
ip option ssrr exists
rt type 0
meta l4proto tcp frag frag-off 1-2
ip protocol tcp ip frag-off & 0x1fff 1-2
ip protocol tcp ip frag-off & 0x3fff == 0x2000 ip length < 40
ip6 nexthdr != 0 exthdr hbh exists
ip saddr { 127.0.0.0/8, 224.0.0.0/4, 255.255.255.255 }
ip6 saddr { ::1, ff00::/8 }
icmpv6 type 133-137 ip6 hoplimit != 255
tcp doff < 5
tcp flags & (fin|syn|rst|ack|urg) != { syn, syn|urg, syn|ack, rst, rst|ack, fin|ack, fin|ack|urg, ack, ack|urg }
tcp dport 0
udp dport 0
tcp sport 0
udp length < 8`, "", " counter drop")

	iptablesChecks = dropEach(`-m ttl --ttl-eq 0
-p tcp -m u32 --u32 "4&0x1FFF=1:2"
-p tcp -m u32 --u32 "4&0x3FFF=0x2000" -m u32 ! --u32 "0>>22&0x3C@16=0:0xFFFFFFFF"
-s 224.0.0.0/4
-s 255.255.255.255
-s 127.0.0.0/8
-p tcp ! -f -m tcp --tcp-flags ALL NONE
-p tcp ! -f -m tcp --tcp-flags SYN,FIN SYN,FIN
-p tcp ! -f -m tcp --tcp-flags SYN,RST SYN,RST
-p tcp ! -f -m tcp --tcp-flags FIN,ACK FIN
-p tcp ! -f -m tcp --dport 0
-p udp ! -f -m udp --dport 0
-p tcp ! -f -m tcp --sport 0`, "-A PREROUTING ", " -j DROP")
)

// dropEach adds a text before and after each line.
func dropEach(tests, before, behind string) string {
	var b strings.Builder
	for line := range strings.Lines(tests) {
		b.WriteString(before + strings.TrimSuffix(line, "\n") + behind + "\n")
	}
	return b.String()
}
