package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/floodwall/floodwall/internal/compile/image"
)

// VerifiedClients counts the clients of the generation that are known to be who they say, at the moment, and says how many
// can be; both are 0 when it knows none ever. The kernel copies them thousands at a time, so that it takes milliseconds.
func (g *Generation) VerifiedClients() (clients, most int, err error) {
	m, err := g.verified()
	if m == nil || err != nil {
		return 0, 0, err
	}
	defer m.Close()
	const atOnce = 4096 // more than any bucket of the kernel's hash table has, or it refuses (kernel/bpf/hashtab.c, ENOSPC)
	keys, expiries := make([][16]byte, atOnce), make([]uint32, atOnce)
	now := uint32(image.Monotonic().Seconds())
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, expiries, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return 0, 0, fmt.Errorf("verified clients: %w", err)
		}
		for _, expiry := range expiries[:n] {
			if expiry > now {
				clients++
			}
		}
		if err != nil {
			return clients, int(m.MaxEntries()), nil
		}
	}
}
