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

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// tool is a way to limit sources.
type tool struct {
	name, label string
	random      bool // only with the first case
	install     func(context.Context, *limitBuilder, *rig.Site, limitTestCase) (limiter, error)
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

// unchecked is the line of a policy without checks.
const unchecked = "checks: off\n"

// tally is how many packets a limit has seen since it was installed.
type tally struct {
	over         uint64 // the limit
	heavy, light uint64 // passed, by port
}

// limiter is a limit that is installed.
type limiter struct {
	program *ebpf.Program // to attach; nil: nothing
	tally   func(context.Context) (tally, error)
	entries func(context.Context) (int, error) // prefixes that it holds; nil: it does not tell
	bytes   uint64                             // of kernel memory; 0: unknown
}

// floodwallLimit applies a policy, which stays, with more lines before it.
func floodwallLimit(target, more string) func(context.Context, *limitBuilder, *rig.Site, limitTestCase) (limiter, error) {
	return func(ctx context.Context, b *limitBuilder, at *rig.Site, c limitTestCase) (l limiter, err error) {
		in, err := b.Hold(ctx, at, more+c.policy(), target)
		if err != nil {
			return l, err
		}
		status := func(ctx context.Context) (s *control.Status, err error) {
			err = at.Server.Do(func() (err error) {
				s, err = in.Status(ctx)
				return err
			})
			return s, err
		}
		l.tally = func(ctx context.Context) (t tally, err error) {
			s, err := status(ctx)
			if err == nil {
				t = ruleTally(s)
			}
			return t, err
		}
		if target != "xdp" {
			return l, nil
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
		return l, err
	}
}

// programMemory is the kernel memory of the maps of the program that is attached to the site.
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

// ruleTally reads the counters of a case's policy.
func ruleTally(s *control.Status) (t tally) {
	for _, r := range s.Rules {
		switch r.Name {
		case "limit":
			t.over = r.Packets
		case "heavy":
			t.heavy = r.Packets
		case "light":
			t.light = r.Packets
		}
	}
	return t
}

// hashlimit is the limit with a form of iptables, behind some rules.
func hashlimit(form, before string) func(context.Context, *limitBuilder, *rig.Site, limitTestCase) (limiter, error) {
	return func(ctx context.Context, _ *limitBuilder, at *rig.Site, c limitTestCase) (l limiter, err error) {
		const name = "bench"
		rules := fmt.Sprintf("-A PREROUTING -p udp -m hashlimit --hashlimit-above %d/sec --hashlimit-burst %d --hashlimit-mode srcip"+
			" --hashlimit-srcmask %d --hashlimit-name %s -j DROP\n", c.rate, burst, c.per, name) +
			fmt.Sprintf("-A PREROUTING -p udp --dport %d -j DROP\n-A PREROUTING -p udp -j DROP\n", heavyPort)
		if err := rig.RestoringBy(form, "*raw\n"+before+rules+"COMMIT\n")(ctx, at); err != nil {
			return l, err
		}
		l.tally = func(ctx context.Context) (tally, error) {
			out, _, err := rig.RunTool(ctx, at.Server, nil, form+"-save", "-c", "-t", "raw")
			if err != nil {
				return tally{}, err
			}
			return tallyOf(countsAfter(out, "["))
		}
		l.entries = func(context.Context) (n int, err error) {
			err = at.Server.Do(func() error {
				held, err := os.ReadFile("/proc/thread-self/net/ipt_hashlimit/" + name)
				n = strings.Count(string(held), "\n")
				return err
			})
			return n, err
		}
		return l, nil
	}
}

// nftMeter is the limit with nft, as its wiki has it: a set that packets fill; behind some rules.
func nftMeter(before string) func(context.Context, *limitBuilder, *rig.Site, limitTestCase) (limiter, error) {
	return func(ctx context.Context, b *limitBuilder, at *rig.Site, c limitTestCase) (l limiter, err error) {
		rules := fmt.Sprintf("meta l4proto udp update @held { ip saddr & %s limit rate over %d/second burst %d packets } counter drop\n",
			c.mask(), c.rate, burst) + fmt.Sprintf("udp dport %d counter drop\nmeta l4proto udp counter drop\n", heavyPort)
		script := rig.NftRaw.Script(at, before+rules, "set held {\ntype ipv4_addr\nsize 65536\nflags dynamic,timeout\ntimeout 1m\n}\n")
		if err := b.InstallNft(ctx, at, script); err != nil {
			return l, err
		}
		l.tally = func(ctx context.Context) (tally, error) {
			out, _, err := rig.RunTool(ctx, at.Server, nil, "nft", "list", "chain", "inet", "bench", "drops")
			if err != nil {
				return tally{}, err
			}
			return tallyOf(countsAfter(out, "counter packets "))
		}
		l.entries = func(ctx context.Context) (int, error) {
			out, _, err := rig.RunTool(ctx, at.Server, nil, "nft", "list", "set", "inet", "bench", "held")
			return strings.Count(out, "expires"), err
		}
		return l, nil
	}
}

// lruEntries is how many sources the plain program's map holds.
const lruEntries = 100_000

// lruLimit is the limit as a plain BPF program.
func lruLimit(_ context.Context, b *limitBuilder, _ *rig.Site, c limitTestCase) (l limiter, err error) {
	interval := uint64(1e9) / uint64(c.rate)
	mask := c.mask().As4()
	p, err := rig.LoadPeer(rig.Limit4, func(m *ebpf.MapSpec) { m.MaxEntries = lruEntries }, map[string]any{
		rig.Limit4Mask:     binary.NativeEndian.Uint32(mask[:]),
		rig.Limit4Interval: interval,
		rig.Limit4Burst:    burst * interval,
		rig.Limit4Heavy:    binary.NativeEndian.Uint16([]byte{0, heavyPort}),
	})
	if err != nil {
		return l, err
	}
	b.Owned = append(b.Owned, p.Set.Close, p.Counts.Close)
	l.program = b.Own(p.Program)
	if l.bytes, err = rig.MapMemory(p.Program); err != nil {
		return l, err
	}
	l.tally = func(context.Context) (tally, error) {
		counts := make([]uint64, 3)
		for i := range counts {
			var perCPU []uint64
			if err := p.Counts.Lookup(uint32(i), &perCPU); err != nil {
				return tally{}, fmt.Errorf("counters: %w", err)
			}
			for _, n := range perCPU {
				counts[i] += n
			}
		}
		return tallyOf(counts)
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
	return l, nil
}

// countsAfter reads the numbers at the beginning of what follows each occurrence of some text.
func countsAfter(out, before string) (counts []uint64) {
	for _, part := range strings.Split(out, before)[1:] {
		end := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' })
		if n, err := strconv.ParseUint(part[:max(0, end)], 10, 64); err == nil {
			counts = append(counts, n)
		}
	}
	return counts
}

// tallyOf is the counts of the limit's rule and the two after it. Chains may have counted before these.
func tallyOf(counts []uint64) (tally, error) {
	if len(counts) < 3 {
		return tally{}, errors.New("counters: there are not three rules")
	}
	last := counts[len(counts)-3:]
	return tally{last[0], last[1], last[2]}, nil
}
