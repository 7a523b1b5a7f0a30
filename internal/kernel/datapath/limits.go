// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// LimitStatus is the status of a limit's table.
type LimitStatus struct {
	Debts     int    // number of prefixes that have a debt now
	Capacity  int    // in prefixes; in a full bucket the smallest debt is removed to make space
	Evictions uint64 // number of debts removed for lack of space since the generation was loaded
}

// Limits reads the status of the tables of the program's limits, by the number of the limit. It returns nil when the program has no limits.
func (p *Program) Limits() ([]LimitStatus, error) {
	memory, release, err := p.Memory(image.LimitInfos, image.Limits)
	if err != nil {
		return nil, err
	}
	defer release()
	return readLimits(memory, p.Map(image.Evictions))
}

// Limits reads the status of the tables of the generation's limits, by the number of the limit. It returns nil when the generation has no limits.
func (g *Generation) Limits() ([]LimitStatus, error) {
	memory, err := g.Memory(image.LimitInfos, image.Limits)
	if err != nil || memory[image.LimitInfos] == nil {
		return nil, err
	}
	evictions, err := g.pinned(image.Evictions)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", image.Evictions, err)
	}
	defer evictions.Close()
	return readLimits(memory, evictions)
}

func readLimits(memory map[string][]byte, evictions *ebpf.Map) ([]LimitStatus, error) {
	infos, tables := memory[image.LimitInfos], memory[image.Limits]
	now := uint64(image.Monotonic())
	var out []LimitStatus
	for number := range len(infos) / image.LimitInfoSize {
		info, err := image.ReadLimitInfo(infos[number*image.LimitInfoSize:])
		if err != nil {
			return nil, fmt.Errorf("limit %d: %w", number, err)
		}
		s := LimitStatus{Capacity: image.LimitPerBucket * int(info.Mask+1)}
		for b := range int(info.Mask) + 1 {
			s.Debts += info.Debts(tables[(int(info.Base)+b)*image.LimitBucketSize:], now)
		}
		var perCPU []uint64
		if err := evictions.Lookup(uint32(number), &perCPU); err != nil {
			return nil, fmt.Errorf("evictions of limit %d: %w", number, err)
		}
		for _, n := range perCPU {
			s.Evictions += n
		}
		out = append(out, s)
	}
	return out, nil
}
