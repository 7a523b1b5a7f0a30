package datapath

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// Inherited are maps that a program takes over from the generation before. Each may be nil, for a new one.
type Inherited struct {
	Counters *ebpf.Map // to count in
	Verified *ebpf.Map // clients that are known to be who they say

	// The connections that have proved their address, and the keys of the cookies that were sent. A table of another
	// size is not taken over: Preload finds its connections again, and cookies prove the others.
	Flows, FlowFilter, SynKeys *ebpf.Map

	// What has left and may be answered, and the keys of that table.
	ReplyFlows, ReplyFilter *ebpf.Map

	AnsweredNames, FloodedZones, ZoneTimes *ebpf.Map // names that were answered, zones, and the key of their hashes

	CookiesSent *ebpf.Map // for which connections those are on their way; without it, of any there may be

	States *ebpf.Map // how protections stand, for CarryStates
}

// Inherited opens the maps, but for the counters, that the next generation goes on with.
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

// Close gives up the maps, the counters among them.
func (from Inherited) Close() {
	for _, m := range []*ebpf.Map{from.Counters, from.Verified, from.Flows, from.FlowFilter, from.SynKeys, from.CookiesSent, from.States, from.ReplyFlows, from.ReplyFilter, from.AnsweredNames, from.FloodedZones, from.ZoneTimes} {
		m.Close()
	}
}

// open opens a map of the generation, nil when it has none of that name.
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

// replacements are the maps that a program of this spec takes over. The map of counters keeps its size. The flow table
// needs the key of its hash and its bitmap.
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

// CarryStates copies the states of protections from the generation before. before maps their numbers in this program,
// from 0 on, to those in that one; protections that it lacks begin anew.
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
