package experiment

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

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
func loadHash(_ context.Context, b *Builder) (g rig.Loaded, err error) {
	if b.List.V6 || !b.List.Hosts {
		return g, &rig.Missing{Reason: "a hash map holds addresses, not prefixes"}
	}
	if need := 150 * uint64(len(b.List.Prefixes)); rig.AvailableMemory() < 2*need {
		return g, &rig.Missing{Reason: "not enough memory"}
	}
	start := time.Now()
	p, err := b.loadSet(rig.Hash4)
	if err != nil {
		return g, err
	}
	keys := make([][4]byte, len(b.List.Prefixes))
	for i, prefix := range b.List.Prefixes {
		keys[i] = prefix.Addr().As4()
	}
	return b.filled(p, start, fill(p.Set, keys))
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
	b.Add(&rig.Rate{
		Name: name, Label: fmt.Sprintf("the least, and one line of the smallest table for this list (%.1f MB)", float64(bytes)/1e6),
		Subject: rig.Subject{Site: b.XDP, Program: b.Own(p.Program)}, Flood: "listed", Flows: []lab.Flow{rig.Flood(b.List.Listed)},
	})
	return nil
}

// loadTrie fills a BPF LPM trie for the address family of the list.
func loadTrie(_ context.Context, b *Builder) (g rig.Loaded, err error) {
	start := time.Now()
	if !b.List.V6 {
		p, err := b.loadSet(rig.LPM4)
		if err != nil {
			return g, err
		}
		return b.filled(p, start, fill(p.Set, trieKeys(b.List.Prefixes, netip.Addr.As4)))
	}
	p, err := b.loadSet(rig.LPM6)
	if err != nil {
		return g, err
	}
	return b.filled(p, start, fill(p.Set, trieKeys(b.List.Prefixes, netip.Addr.As16)))
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

// loadSet loads a program whose set has the size of the list.
func (b *Builder) loadSet(program string) (rig.LoadedPeer, error) {
	p, err := rig.LoadPeer(program, func(m *ebpf.MapSpec) { m.MaxEntries = uint32(len(b.List.Prefixes)) }, nil)
	if err != nil {
		return p, err
	}
	b.Own(p.Program)
	b.Owned = append(b.Owned, p.Set.Close)
	return p, nil
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

// filled returns the loaded set, with the time since start and its memory.
func (b *Builder) filled(p rig.LoadedPeer, start time.Time, err error) (g rig.Loaded, _ error) {
	if err != nil {
		return g, err
	}
	g.Seconds = report.Samples{time.Since(start).Seconds()}
	bytes, err := rig.Memlock(p.Set)
	g.Bytes, g.Subject = float64(bytes), rig.Subject{Site: b.XDP, Program: p.Program}
	return g, err
}
