// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/policy"
)

// Refused counts the packets that the running policy drops and answers, at XDP and at tc, and those that its devices lose before it sees them.
type Refused struct {
	Settings []policy.XDP // of the devices whose programs move with a flood

	counters *ebpf.Map
	id       ebpf.MapID // of counters
	slots    []uint32
	devices  []int // the indexes of the devices
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
	if g.Program == nil {
		return nil, nil
	}
	r := &Refused{Settings: g.Manifest.Floods(), slots: g.Manifest.RefusedSlots()}
	if r.Settings == nil {
		return nil, nil
	}
	for _, name := range g.Manifest.Devices {
		if dev, err := netlink.LinkByName(name); err == nil && g.Manifest.MovesByFlood(name) {
			r.devices = append(r.devices, dev.Attrs().Index)
		}
	}
	if r.counters, err = g.Program.Counters(); err != nil {
		return nil, err
	}
	info, err := r.counters.Info()
	if err != nil {
		r.counters.Close()
		return nil, fmt.Errorf("counters: %w", err)
	}
	r.id, _ = info.ID()
	return r, nil
}

// Continues reports whether the count of r goes on from that of before. Either may be nil.
func (r *Refused) Continues(before *Refused) bool {
	return r != nil && before != nil && r.id == before.id && slices.Equal(r.slots, before.slots) && slices.Equal(r.devices, before.devices)
}

// Close closes the counters.
func (r *Refused) Close() error { return r.counters.Close() }

// Count returns the number of packets that the policy has dropped or answered. It takes one system call.
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

// Losses are packets that were lost before the policy saw them.
type Losses struct {
	missed  uint64 // found no free place in a device's receive ring
	dropped uint64 // dropped by the devices for any reason
	backlog uint64 // found no space in the backlog of a CPU, of all devices
}

// Losses reads the losses of the devices.
func (r *Refused) Losses() (n Losses, err error) {
	for _, index := range r.devices {
		if s, err := features.StatisticsOf(index); err == nil { // a device may have gone
			n.missed, n.dropped = n.missed+s.Missed, n.dropped+s.Dropped
		}
	}
	n.backlog, err = features.BacklogDrops()
	return n, err
}

// Since returns the number of packets that were lost since an earlier time. A loss in the backlog counts at its device as dropped, like losses for other
// reasons, and the backlog has losses of other devices: the lesser of both is what is certain.
func (n Losses) Since(before Losses) uint64 {
	more := func(now, before uint64) uint64 { return now - min(now, before) }
	return more(n.missed, before.missed) + min(more(n.dropped, before.dropped), more(n.backlog, before.backlog))
}

// The reasons of the moves by floods.
const (
	inFlood = "there is a flood"
	inCalm  = "there is no flood"
)

// ErrTrialKeepsModes says that a program cannot move between tc and XDP. The end of the trial would not bring the mode back.
var ErrTrialKeepsModes = errors.New("a policy is on trial, and no device changes its mode meanwhile")

// MoveByFlood moves the programs of the running policy to XDP or to tc. flood says for a setting whether there is a flood, and whether that is known:
// if not, the program stays where it is. A device stays at tc if the policy's answers or VLAN tags would be lost at XDP. Once it is at XDP it stays there
// if a change has cost it more than it can gain. A device that refuses the other mode keeps its mode. refused has the causes: each once until the device
// has moved, or each time if there is a reason why. MoveByFlood does nothing if no policy runs whose program moves with a flood. During a trial it
// returns ErrTrialKeepsModes if a device should move.
func (in Instance) MoveByFlood(ctx context.Context, why string, flood func(policy.XDP) (flood, known bool)) (moved []RepairedDevice, refused []*datapath.AttachError, err error) {
	err = in.locked(ctx, func(state *datapath.State) error {
		l, err := generation.OpenAny(ctx, state)
		if err != nil {
			return err
		}
		defer l.Close()
		if len(l.Generations) == 0 || l.Generations[0].Program == nil {
			return nil
		}
		g := l.Generations[0]
		to := map[datapath.Mode][]string{}
		for _, d := range g.Program.Devices {
			flooded, known := flood(g.Manifest.Home(d.Name).XDP)
			was, goes := datapath.Native, datapath.TC
			if flooded {
				was, goes = goes, was
			}
			if known && d.Mode == was && whyNotMoved(g, d) == "" {
				to[goes] = append(to[goes], d.Name)
			}
		}
		if len(to) > 0 && l.Trial != nil {
			return ErrTrialKeepsModes
		}
		in, refusedIn, errIn := state.TakeNative(to[datapath.Native], g.Number)
		out, refusedOut, errOut := state.TakeTC(to[datapath.TC], g.Number)
		for _, d := range slices.Concat(in, out) {
			note, was := cmp.Or(why, inFlood), datapath.TC
			if d.Mode == datapath.TC {
				note, was = cmp.Or(why, inCalm), datapath.Native
			}
			g.Moves.Note(d, note)
			moved = append(moved, RepairedDevice{Name: d.Name, Mode: string(d.Mode), Was: string(was), Note: note + " (" + d.Move.String() + ")"})
		}
		for _, r := range slices.Concat(refusedIn, refusedOut) {
			if g.Moves.NoteRefusal(r) || why != "" {
				refused = append(refused, r)
			}
		}
		if moved != nil || refused != nil {
			err = g.Moves.Write(state, g.Number)
		}
		return errors.Join(errIn, errOut, err)
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil, nil, nil
	}
	if err != nil {
		return moved, refused, fmt.Errorf("moving the program between tc and XDP: %w", err)
	}
	return moved, refused, nil
}

// whyNotMoved says why the daemon does not move the program of a device by floods. It returns "" if the daemon moves it.
func whyNotMoved(g *generation.Generation, d *datapath.Device) string {
	m := g.Manifest
	home := m.Home(d.Name)
	if !m.MovesByFlood(d.Name) {
		switch {
		case m.Mode != datapath.Keep && m.Mode != datapath.Auto:
			return fmt.Sprintf("mode %s was asked for", m.Mode)
		case home.Auto && home.Cost == "":
			return "XDP costs the device nothing that it shows"
		case home.When == policy.XDPFlooded:
			return "this kernel has no mode tc"
		}
		return fmt.Sprintf("the policy says `xdp: %s`", home.When)
	}
	if d.Mode == datapath.Generic {
		return "the program runs in generic mode"
	}
	if beside := d.Beside(); beside != "" {
		return beside
	}
	if !d.MayTakeNative() {
		return "its packets have no Ethernet header, or its driver may stop running XDP"
	}
	if best, cause := m.ModeFor(d.Name); best != datapath.Auto {
		return cause.Error()
	}
	if d.Mode == datapath.Native && !g.Program.Has(datapath.TC) {
		return "this kernel could not load the program for mode tc"
	}
	if d.Mode == datapath.Native { // a device at tc must get to XDP in a flood, whatever a move costs it
		return g.Moves[d.Name].Stays
	}
	return ""
}
