// SPDX-License-Identifier: Apache-2.0

// This file is the experiment sets: lookups of sources in lists of up to ten million addresses.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// runSets measures the cost of finding a source in a list of addresses, and the cost of the list itself.
func runSets(ctx context.Context, s *rig.Session) error {
	sizes := []int{1_000, 100_000, 1_000_000, 10_000_000}
	sizes = report.Choice(s.Quick, sizes[1:2], sizes)
	sizes = report.Choice(s.Sizes != nil, s.Sizes, sizes)
	measure := func(l *rig.List) error { return measureList(ctx, s, l) }
	if err := eachList(s, sizes, measure); err != nil || s.List != "" {
		return err
	}
	return measure(rig.RandomPrefixes(min(v6Size, slices.Max(sizes))))
}

// v6Size is the number of IPv6 prefixes of the IPv6 table.
const v6Size = 1_000_000

// goals contains Floodwall's goals with random IPv4 addresses: shares of the smallest program's rate for listed and for unlisted sources, seconds to
// apply the text file, and bytes of kernel memory; 0: no goal.
type goals struct{ listed, unlisted, seconds, bytes float64 }

var goalsBySize = map[string]goals{
	"n=1000000":  {0.65, 0.80, 0.35, 12e6},
	"n=10000000": {0.50, 0.75, 2.5, 100e6},
}

// setsTool is a tool that holds a list.
type setsTool struct {
	name, label string
	slow        bool // it takes minutes for 10 million addresses
	load        func(context.Context, *Builder) (rig.Loaded, error)
}

var setsAllTools = []setsTool{
	{"floodwall", "floodwall", false, LoadFloodwall},
	{"bpf-hash", "BPF hash map, a program with nothing else", false, loadHash},
	{"bpf-lpm", "BPF LPM trie, a program with nothing else", true, loadMap(fillTrie)},
	{"ipset", "ipset, iptables raw", true, loadIpset},
	{"nft/ingress", "nft set, ingress hook", true, loadNft(rig.NftIngress)},
	{"nft/raw", "nft set, raw prerouting", true, loadNft(rig.NftRaw)},
}

// Builder makes the tables of one list.
type Builder struct {
	*rig.Builder
	List *rig.List
	load report.Table
}

// measureList makes the two tables of a list: packet rates, and the cost of loading.
func measureList(ctx context.Context, s *rig.Session, l *rig.List) error {
	return rig.With(ctx, s, func(in *rig.Builder) error {
		b := &Builder{Builder: in, List: l}
		b.Flow = rig.Flood(l.Unlisted)
		b.Table.Title = "sets: " + l.Label + "; 64-byte UDP packets"
		if l.V6 {
			b.Table.Title = "sets: " + l.Label + "; 66-byte UDP packets"
		}
		b.load = report.Table{
			Title: "sets: loading " + l.Label,
			Head:  []string{"", "seconds", "MB in the kernel", "bytes each", ""},
			Notes: []string{
				"Seconds: floodwall from the policy's text file to enforcement (what `floodwall apply` takes); BPF maps from",
				"addresses in memory, by batches; ipset and nft with their own tools, from scripts in their own format.",
			},
		}
		if l.Note != "" {
			b.Table.Notes = append(b.Table.Notes, l.Note)
		}
		return b.run(ctx)
	})
}

func (b *Builder) run(ctx context.Context) error {
	if err := b.Limits(); err != nil {
		return err
	}
	if err := b.leastLine(); err != nil {
		return err
	}
	defer b.publishLoad() // publishes all figures so far, also when the rest cannot be measured
	for _, t := range setsAllTools {
		if err := b.tool(ctx, t); err != nil {
			return err
		}
	}
	return b.Builder.Measure(ctx)
}

func (b *Builder) publishLoad() {
	if len(b.load.Rows) > 0 {
		b.Outcome.Tables = append(b.Outcome.Tables, &b.load)
	}
}

// tool loads the list with a tool and adds the rows.
func (b *Builder) tool(ctx context.Context, t setsTool) error {
	n, prefix := len(b.List.Prefixes), b.List.Name+"/"+t.name
	if !b.Wants(prefix) && !b.Wants(prefix+"/listed") && !b.Wants(prefix+"/unlisted") {
		return nil // skips tools that nobody wants, as some take a minute to load the list
	}
	var got rig.Loaded
	err := error(&rig.Missing{Reason: "takes minutes: measured with --all"})
	if !t.slow || n < rig.SlowSize || b.All {
		b.Steps.Show("loading %s: %s", b.List.Label, t.label)
		got, err = t.load(ctx, b)
	}
	reason, err := rig.Tolerate(err)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", t.label, b.List.Label, err)
	}
	bars := goals{}
	if t.name == "floodwall" {
		bars = goalsBySize[b.List.Name]
	}
	b.loadRow(t, got, reason, bars)
	if reason != "" {
		b.Add(&rig.Row{Name: prefix, Label: t.label, Missing: reason})
		return nil
	}
	b.Add(&rig.Row{
		Name: prefix + "/listed", Label: t.label + ": listed sources", Subject: got.Subject,
		Goals: rig.OfLeast(bars.listed), Flood: "listed", Flows: []lab.Flow{rig.Flood(b.List.Listed)}, Extra: got.Metrics(),
	})
	b.Add(&rig.Row{
		Name: prefix + "/unlisted", Label: t.label + ": unlisted sources", Subject: got.Subject,
		Goals: rig.OfLeast(bars.unlisted),
	})
	return nil
}

// loadRow adds the tool's row to the table of loading. The parameter reason tells why the list is not loaded; "" if it is.
func (b *Builder) loadRow(t setsTool, g rig.Loaded, reason string, bars goals) {
	g.Note += reason
	b.load.AddRow(g.Cells(t.label, len(b.List.Prefixes))...)
	name := fmt.Sprintf("%s/%s/%s", b.Outcome.Name, b.List.Name, t.name)
	if bars.seconds > 0 && len(g.Seconds) > 0 {
		b.Outcome.Bars = append(b.Outcome.Bars, report.AtMost(name+" seconds to load", g.Seconds.Median(), bars.seconds))
	}
	if bars.bytes > 0 && g.Bytes > 0 {
		b.Outcome.Bars = append(b.Outcome.Bars, report.AtMost(name+" MB", g.Bytes/1e6, bars.bytes/1e6))
	}
}

// loadIpset restores an ipset. One rule of iptables drops its entries, the next drops all other packets.
func loadIpset(ctx context.Context, b *Builder) (g rig.Loaded, err error) {
	at, err := b.NewSite()
	if err != nil {
		return g, err
	}
	if g, err = rig.RestoreIpset(ctx, at, b.List); err != nil {
		return g, err
	}
	_, err = rig.RestoreRules(ctx, at, b.List.V6, "*raw\n-A PREROUTING "+rig.MatchListed+" -j DROP\n-A PREROUTING -j DROP\nCOMMIT\n")
	return g, err
}

// loadNft loads an nft set at a hook. One rule drops its entries, the next drops all other packets.
func loadNft(hook rig.NftHook) func(context.Context, *Builder) (rig.Loaded, error) {
	return func(ctx context.Context, b *Builder) (g rig.Loaded, err error) {
		at, err := b.NewSite()
		if err != nil {
			return g, err
		}
		return rig.LoadNftSet(ctx, at, b.List, hook, rig.NftDrop(b.List)+"drop\n")
	}
}

// eachList calls measure with a list. If the options name a list, it is this list. Otherwise there is a list of random addresses for each size. A
// list is made only when it is measured, because the largest lists need much memory.
func eachList(s *rig.Session, sizes []int, measure func(*rig.List) error) error {
	s.Steps.Show("making addresses")
	if s.List != "" {
		l, err := rig.ReadList(s.List)
		if err != nil {
			return err
		}
		return measure(l)
	}
	for _, n := range sizes {
		s.Steps.Show("making addresses")
		if err := measure(rig.RandomHosts(n)); err != nil {
			return err
		}
	}
	return nil
}

// loads is the number of times that the loading of a short list is measured.
const loads = 3

// LoadFloodwall applies a policy with a set that reads the text file of the list.
func LoadFloodwall(ctx context.Context, b *Builder) (g rig.Loaded, err error) {
	file, remove, err := rig.TempFile("list.txt", b.List.Write)
	if err != nil {
		return g, err
	}
	defer remove()
	check := rig.Expect(map[string]string{
		rig.FloodPacket(b.List.Listed[0]): "listed", rig.FloodPacket(b.List.Unlisted[0]): "default",
	})
	text := "default: drop\nsets: {listed: {file: " + strconv.Quote(file) + "}}\n" +
		"rules: [{name: listed, from: $listed, then: drop}]\n"
	times := loads
	if len(b.List.Prefixes) >= rig.SlowSize || b.Quick {
		times = 1
	}
	for range times {
		a, err := b.XDP.Apply(ctx, text, check)
		if err != nil {
			return g, err
		}
		g.Subject = rig.Subject{Site: b.XDP, Program: b.Own(a.Program)}
		g.Seconds, g.Bytes = append(g.Seconds, a.Seconds), float64(a.Bytes)
	}
	return g, nil
}

// loadHash fills a BPF hash map. Such a map can only have single addresses.
func loadHash(ctx context.Context, b *Builder) (rig.Loaded, error) {
	if b.List.V6 || !b.List.Hosts {
		return rig.Loaded{}, &rig.Missing{Reason: "a hash map holds addresses, not prefixes"}
	}
	if !memoryFor(b.List) {
		return rig.Loaded{}, &rig.Missing{Reason: "not enough memory"}
	}
	return loadMap(fillHash)(ctx, b)
}

// memoryFor reports whether the machine has enough memory for a map with the list.
func memoryFor(l *rig.List) bool { return rig.AvailableMemory() >= 2*150*uint64(len(l.Prefixes)) }

// loadMap loads a program of bpf/bench.c whose map has the list.
func loadMap(fill func(*rig.List) (rig.LoadedPeer, error)) func(context.Context, *Builder) (rig.Loaded, error) {
	return func(_ context.Context, b *Builder) (g rig.Loaded, err error) {
		start := time.Now()
		p, err := fill(b.List)
		if err != nil {
			return g, err
		}
		b.Owned = append(b.Owned, p.Set.Close)
		g.Seconds = report.Samples{time.Since(start).Seconds()}
		bytes, err := rig.Memlock(p.Set)
		g.Bytes, g.Subject = float64(bytes), rig.Subject{Site: b.XDP, Program: b.Own(p.Program)}
		return g, err
	}
}

// fillHash loads a program with a hash map of the addresses of a list of IPv4 hosts.
func fillHash(l *rig.List) (rig.LoadedPeer, error) {
	keys := make([][4]byte, len(l.Prefixes))
	for i, prefix := range l.Prefixes {
		keys[i] = prefix.Addr().As4()
	}
	return fillPeer(rig.Hash4, keys)
}

// fillTrie loads a program with an LPM trie of the prefixes of a list.
func fillTrie(l *rig.List) (rig.LoadedPeer, error) {
	if l.V6 {
		return fillPeer(rig.LPM6, trieKeys(l.Prefixes, netip.Addr.As16))
	}
	return fillPeer(rig.LPM4, trieKeys(l.Prefixes, netip.Addr.As4))
}

// fillPeer loads a program of bpf/bench.c and fills its set.
func fillPeer[K any](program string, keys []K) (rig.LoadedPeer, error) {
	p, err := rig.LoadPeer(program, func(m *ebpf.MapSpec) { m.MaxEntries = uint32(len(keys)) }, nil)
	if err == nil {
		err = fill(p.Set, keys)
	}
	if err != nil {
		return rig.LoadedPeer{}, errors.Join(err, closePeer(&p))
	}
	return p, nil
}

// closePeer closes a program and its set if they are loaded.
func closePeer(p *rig.LoadedPeer) error {
	if p.Program == nil {
		return nil
	}
	err := errors.Join(p.Program.Close(), p.Set.Close())
	*p = rig.LoadedPeer{}
	return err
}

// leastBytes returns the size in bytes of the smallest possible table that distinguishes the addresses of a list from all others. The number of bits
// is the binary logarithm of the number of such lists of IPv4 addresses, by Stirling's formula. The result is at least one cache line.
func leastBytes(addresses int) int {
	n, all := float64(addresses), math.Exp2(32)
	bits := n*math.Log2(all/n) + (all-n)*math.Log2(all/(all-n))
	return max(int(bits/8), rig.Line)
}

// leastLine adds the row of a program that reads one cache line of the smallest possible table for the list. No exact set of random addresses can
// read less.
func (b *Builder) leastLine() error {
	name, bytes := b.List.Name+"/least", leastBytes(len(b.List.Prefixes))
	if b.List.V6 || !b.List.Hosts || !b.Wants(name) {
		return nil
	}
	lines := uint32(bytes / rig.Line)
	p, err := rig.LoadPeer(rig.LeastLine, func(m *ebpf.MapSpec) { m.MaxEntries = lines }, map[string]any{rig.LeastLines: lines})
	if err != nil {
		return err
	}
	b.Owned = append(b.Owned, p.Set.Close)
	b.Add(&rig.Row{
		Name: name, Label: fmt.Sprintf("the least, and one line of the smallest table for this list (%.1f MB)", float64(bytes)/1e6),
		Subject: rig.Subject{Site: b.XDP, Program: b.Own(p.Program)}, Flood: "listed", Flows: []lab.Flow{rig.Flood(b.List.Listed)},
	})
	return nil
}

// trieKey is struct bpf_lpm_trie_key of linux/bpf.h, for IPv4 or IPv6.
type trieKey[A [4]byte | [16]byte] struct {
	Length  uint32
	Address A
}

func trieKeys[A [4]byte | [16]byte](prefixes []netip.Prefix, bytes func(netip.Addr) A) []trieKey[A] {
	keys := make([]trieKey[A], len(prefixes))
	for i, p := range prefixes {
		keys[i] = trieKey[A]{uint32(p.Bits()), bytes(p.Addr())}
	}
	return keys
}

// fill adds keys to a set, in batches.
func fill[K any](set *ebpf.Map, keys []K) error {
	const batch = 1 << 16
	values := make([]byte, batch)
	for len(keys) > 0 {
		n := min(batch, len(keys))
		if _, err := set.BatchUpdate(keys[:n], values[:n], nil); err != nil {
			return fmt.Errorf("map %s: %w", set, err)
		}
		keys = keys[n:]
	}
	return nil
}
