package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/xdp"
)

// minCounters is the least size of the map of counters, in slots: space for policies to grow without a new map.
const minCounters = 1024

// countersSize is the size of a new map of counters for so many slots.
func countersSize(slots uint32) uint32 {
	size := uint32(minCounters)
	for size < 2*slots {
		size *= 2
	}
	return size
}

// ReadCounters returns the first n counters, each summed over all CPUs.
func ReadCounters(m *ebpf.Map, n uint32) ([]xdp.Counter, error) {
	sums := make([]xdp.Counter, n)
	var perCPU []xdp.Counter
	for slot := range n {
		if err := m.Lookup(slot, &perCPU); err != nil {
			return nil, fmt.Errorf("reading counter %d: %w", slot, err)
		}
		for _, c := range perCPU {
			sums[slot].Packets += c.Packets
			sums[slot].Bytes += c.Bytes
		}
	}
	return sums, nil
}

// Counters returns the program's counters.
func (p *Program) Counters() ([]xdp.Counter, error) {
	m := p.collection.Maps[xdp.Counters]
	return ReadCounters(m, m.MaxEntries())
}
