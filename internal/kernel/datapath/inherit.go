// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// Inherited has the maps that a program takes over from the previous generation. For a map that is nil, the program gets a new one.
type Inherited struct {
	Counters *ebpf.Map // the map of counters
	Verified *ebpf.Map // the verified clients

	// The table of connections that have proved their address, and the keys of the cookies that were sent. A table of another size is not taken over:
	// Preload then reads the connections from the kernel, and a cookie proves each of the other ones.
	Flows, FlowFilter, SynKeys *ebpf.Map

	// The table of flows whose replies pass, and the keys of this table.
	ReplyFlows, ReplyFilter *ebpf.Map

	AnsweredNames, FloodedZones, ZoneTimes *ebpf.Map // the names that were answered, the flooded zones, and the key of their hashes

	CookiesSent *ebpf.Map // the connections to which cookies were sent; without this map every connection may have got one

	States *ebpf.Map // the states of protections, for CarryStates
}

// Inherited opens the maps that the next generation takes over, except the counters.
func (s *State) Inherited() (from Inherited, err error) {
	for name, to := range map[string]**ebpf.Map{
		image.Verified: &from.Verified, image.Flows: &from.Flows, image.FlowFilter: &from.FlowFilter, image.SynKeys: &from.SynKeys,
		image.ProtectionStates: &from.States, image.CookiesSent: &from.CookiesSent,
		image.ReplyFlows: &from.ReplyFlows, image.ReplyFilter: &from.ReplyFilter,
		image.AnsweredNames: &from.AnsweredNames, image.FloodedZones: &from.FloodedZones, image.ZoneTimes: &from.ZoneTimes,
	} {
		if *to, err = s.mapOf(func(g *Generation) (*ebpf.Map, error) { return g.open(name) }); unlessForeign(err) != nil {
			from.Close()
			return Inherited{}, err
		}
	}
	return from, nil
}

// Close closes the maps, including the counters.
func (from Inherited) Close() {
	for _, m := range []*ebpf.Map{from.Counters, from.Verified, from.Flows, from.FlowFilter, from.SynKeys, from.CookiesSent, from.States, from.ReplyFlows, from.ReplyFilter, from.AnsweredNames, from.FloodedZones, from.ZoneTimes} {
		m.Close()
	}
}

// open opens the named map of the generation. It returns nil when the generation has no such map.
func (g *Generation) open(name string) (*ebpf.Map, error) {
	m, err := g.pinned(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	return m, nil
}

// replacements returns the maps that a program of the given spec takes over. The map of counters keeps its size. The flow table is taken over only
// together with its hash key and its bitmap.
func (from Inherited) replacements(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	kept := map[string]*ebpf.Map{}
	if from.Counters != nil {
		spec.Maps[image.Counters].MaxEntries = from.Counters.MaxEntries()
		kept[image.Counters] = from.Counters
	}
	fits := func(name string, m *ebpf.Map) bool {
		return m != nil && spec.Maps[name] != nil && spec.Maps[name].Compatible(m) == nil
	}
	if fits(image.Verified, from.Verified) {
		kept[image.Verified] = from.Verified
	}
	if fits(image.ReplyFlows, from.ReplyFlows) && fits(image.ReplyFilter, from.ReplyFilter) {
		kept[image.ReplyFlows], kept[image.ReplyFilter] = from.ReplyFlows, from.ReplyFilter
	}
	if fits(image.AnsweredNames, from.AnsweredNames) && fits(image.FloodedZones, from.FloodedZones) && fits(image.ZoneTimes, from.ZoneTimes) {
		kept[image.AnsweredNames], kept[image.FloodedZones], kept[image.ZoneTimes] = from.AnsweredNames, from.FloodedZones, from.ZoneTimes
	}
	if !fits(image.SynKeys, from.SynKeys) {
		return kept
	}
	kept[image.SynKeys] = from.SynKeys
	if fits(image.CookiesSent, from.CookiesSent) {
		kept[image.CookiesSent] = from.CookiesSent
	}
	if fits(image.Flows, from.Flows) && fits(image.FlowFilter, from.FlowFilter) {
		kept[image.Flows], kept[image.FlowFilter] = from.Flows, from.FlowFilter
	}
	return kept
}

// CarryStates copies the states of protections from the previous generation. `before` maps the number of a protection in this program, counted from 0,
// to its number in the previous program. Protections that the previous program lacks start with a new state.
func (p *Program) CarryStates(from *ebpf.Map, before map[int]int) error {
	to := p.Map(image.ProtectionStates)
	if to == nil || from == nil || from.ValueSize() != to.ValueSize() {
		return nil
	}
	state := make([]byte, to.ValueSize())
	for now, then := range before {
		err := from.Lookup(uint32(then), &state)
		if err == nil {
			err = to.Put(uint32(now), state)
		}
		if err != nil {
			return fmt.Errorf("state of protection %d: %w", now, err)
		}
	}
	return nil
}
