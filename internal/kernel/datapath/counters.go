// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// minCounters is the smallest size of the map of counters, in slots. Because of this reserve most larger policies need no new map.
const minCounters = 1024

// countersSize returns the size of a new map of counters for a policy with the given number of slots.
func countersSize(slots uint32) uint32 {
	size := uint32(minCounters)
	for size < 2*slots {
		size *= 2
	}
	return size
}

// countersAtOnce is the number of counters that one system call reads. With 64 CPUs these take 256 kB.
const countersAtOnce = 256

// ReadCounters returns the first n counters, each summed over all CPUs.
func ReadCounters(m *ebpf.Map, n uint32) ([]image.Counter, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("reading counters: %w", err)
	}
	sums := make([]image.Counter, n)
	most := min(n, countersAtOnce)
	slots, perCPU := make([]uint32, most), make([]image.Counter, int(most)*cpus)
	var cursor ebpf.MapBatchCursor
	for read := 0; read < len(sums); {
		count := min(int(most), len(sums)-read)
		got, err := m.BatchLookup(&cursor, slots[:count], perCPU[:count*cpus], nil)
		if err != nil && !(errors.Is(err, ebpf.ErrKeyNotExist) && read+got == len(sums)) { // the end of the map is reported as an error
			return nil, fmt.Errorf("reading counters from %d on: %w", read, err)
		}
		for i, c := range perCPU[:got*cpus] {
			sum := &sums[slots[i/cpus]]
			sum.Packets += c.Packets
			sum.Bytes += c.Bytes
		}
		read += got
	}
	return sums, nil
}

// Counters returns the program's counters.
func (p *Program) Counters() ([]image.Counter, error) {
	m := p.collection.Maps[image.Counters]
	return ReadCounters(m, m.MaxEntries())
}
