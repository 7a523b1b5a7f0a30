// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// Refused counts the packets that the running policy drops and answers, at XDP and at tc. Reading the count takes one system call.
type Refused struct {
	policy.XDP

	counters *ebpf.Map
	id       ebpf.MapID // of counters
	slots    []uint32
}

// Refused opens the counters of the running policy. It returns nil if no policy runs whose program moves with a flood.
func (in Instance) Refused(ctx context.Context) (*Refused, error) {
	l, err := generation.Find(ctx, in.Dir)
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer l.Close()
	g := l.Generations[0]
	if g.Program == nil || !g.Manifest.MovesByFlood() {
		return nil, nil
	}
	counters, err := g.Program.Counters()
	if err != nil {
		return nil, err
	}
	info, err := counters.Info()
	if err != nil {
		counters.Close()
		return nil, fmt.Errorf("counters: %w", err)
	}
	id, _ := info.ID()
	return &Refused{XDP: *g.Manifest.XDP, counters: counters, id: id, slots: g.Manifest.RefusedSlots()}, nil
}

// Continues reports whether the count of r goes on from that of before. Either may be nil.
func (r *Refused) Continues(before *Refused) bool {
	return r != nil && before != nil && r.id == before.id && slices.Equal(r.slots, before.slots)
}

// Close closes the counters.
func (r *Refused) Close() error { return r.counters.Close() }

// Count returns the number of packets since the counters were made.
func (r *Refused) Count() (n uint64, err error) {
	if len(r.slots) == 0 {
		return 0, nil
	}
	counts, err := datapath.ReadCounters(r.counters, min(slices.Max(r.slots)+1, r.counters.MaxEntries()))
	if err != nil {
		return 0, err
	}
	for _, slot := range r.slots {
		if slot < uint32(len(counts)) {
			n += counts[slot].Packets
		}
	}
	return n, nil
}

// MoveByFlood moves the programs of the running policy to XDP if there is a flood, and to tc if there is none. A device stays at tc if its driver refuses
// XDP, or if the policy's answers or VLAN tags would be lost at XDP. MoveByFlood does nothing during a trial, and if no policy runs whose program moves
// with a flood.
func (in Instance) MoveByFlood(ctx context.Context, flood bool) (moved []RepairedDevice, err error) {
	err = in.locked(ctx, func(state *datapath.State) error {
		l, err := generation.OpenAny(ctx, state)
		if err != nil {
			return err
		}
		defer l.Close()
		g := l.Generations[0]
		if g.Program == nil || !g.Manifest.MovesByFlood() {
			return nil
		}
		was, move, note := datapath.Native, state.TakeTC, "there is no flood"
		if flood {
			was, move, note = datapath.TC, state.TakeNative, "there is a flood"
		}
		var names []string
		for _, d := range g.Program.Devices {
			if d.Mode == was && d.Beside() == "" && takesXDP(g.Manifest, d) {
				names = append(names, d.Name)
			}
		}
		changed, err := move(names, g.Number)
		for _, d := range changed {
			moved = append(moved, RepairedDevice{Name: d.Name, Mode: string(d.Mode), Was: string(was), Note: note})
		}
		return err
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil, nil
	}
	if err != nil {
		return moved, fmt.Errorf("moving the program between tc and XDP: %w", err)
	}
	return moved, nil
}
