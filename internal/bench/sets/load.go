package bench

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
)

// loads is how often the loading of short lists is timed.
const loads = 3

// loadFloodwall applies a policy whose set is the list's text file.
func loadFloodwall(ctx context.Context, b *setBuilder) (g loaded, err error) {
	file, remove, err := tempFile("list.txt", b.list.write)
	if err != nil {
		return g, err
	}
	defer remove()
	check := expect(map[string]string{
		floodPacket(b.list.listed[0]): "listed", floodPacket(b.list.unlisted[0]): "default",
	})
	text := "default: drop\nsets: {listed: {file: " + strconv.Quote(file) + "}}\n" +
		"rules: [{name: listed, from: $listed, then: drop}]\n"
	times := loads
	if len(b.list.prefixes) >= slowSize || b.Quick {
		times = 1
	}
	for range times {
		a, err := b.xdp.apply(ctx, text, check)
		if err != nil {
			return g, err
		}
		g.subject = subject{b.xdp, b.own(a.program)}
		g.seconds, g.octets = append(g.seconds, a.seconds), float64(a.octets)
	}
	return g, nil
}

// loadHash fills a BPF hash map, which takes single addresses only.
func loadHash(_ context.Context, b *setBuilder) (g loaded, err error) {
	if b.list.v6 || !b.list.hosts {
		return g, &missingTool{"a hash map holds addresses, not prefixes"}
	}
	if need := 150 * uint64(len(b.list.prefixes)); availableMemory() < 2*need {
		return g, &missingTool{"not enough memory"}
	}
	start := time.Now()
	p, err := b.loadSet(hash4)
	if err != nil {
		return g, err
	}
	keys := make([][4]byte, len(b.list.prefixes))
	for i, prefix := range b.list.prefixes {
		keys[i] = prefix.Addr().As4()
	}
	return b.filled(p, start, fill(p.set, keys))
}

// loadTrie fills a BPF LPM trie of the list's family.
func loadTrie(_ context.Context, b *setBuilder) (g loaded, err error) {
	start := time.Now()
	if !b.list.v6 {
		p, err := b.loadSet(lpm4)
		if err != nil {
			return g, err
		}
		return b.filled(p, start, fill(p.set, trieKeys(b.list.prefixes, netip.Addr.As4)))
	}
	p, err := b.loadSet(lpm6)
	if err != nil {
		return g, err
	}
	return b.filled(p, start, fill(p.set, trieKeys(b.list.prefixes, netip.Addr.As16)))
}

// trieKey is struct bpf_lpm_trie_key of linux/bpf.h, with an address of either family.
type trieKey[A [4]byte | [16]byte] struct {
	Length  uint32
	Address A
}

func trieKeys[A [4]byte | [16]byte](prefixes []netip.Prefix, octets func(netip.Addr) A) []trieKey[A] {
	keys := make([]trieKey[A], len(prefixes))
	for i, p := range prefixes {
		keys[i] = trieKey[A]{uint32(p.Bits()), octets(p.Addr())}
	}
	return keys
}

// loadSet loads a program with a set of the list's size.
func (b *setBuilder) loadSet(program string) (peer, error) {
	p, err := loadPeer(program, func(m *ebpf.MapSpec) { m.MaxEntries = uint32(len(b.list.prefixes)) }, nil)
	if err != nil {
		return p, err
	}
	b.own(p.program)
	b.owned = append(b.owned, p.set.Close)
	return p, nil
}

// fill puts keys into a set, by batches.
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

// filled is a set that was filled since start.
func (b *setBuilder) filled(p peer, start time.Time, err error) (g loaded, _ error) {
	if err != nil {
		return g, err
	}
	g.seconds = series{time.Since(start).Seconds()}
	octets, err := memlock(p.set)
	g.octets, g.subject = float64(octets), subject{b.xdp, p.program}
	return g, err
}
