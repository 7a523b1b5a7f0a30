// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/floodwall/floodwall/internal/compile/image"
)

// VerifiedClients returns the number of clients that are verified now, and the largest possible number. Both are 0 when the generation verifies no
// clients. The kernel copies thousands of entries in each call, so VerifiedClients takes milliseconds.
func (g *Generation) VerifiedClients() (clients, most int, err error) {
	m, err := g.verified()
	if m == nil || err != nil {
		return 0, 0, err
	}
	defer m.Close()
	const atOnce = 4096 // must be more than the largest bucket of the kernel's hash table has, or the kernel returns ENOSPC (kernel/bpf/hashtab.c)
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
