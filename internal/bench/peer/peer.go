package bench

import (
	"fmt"
	"maps"
	"strings"

	"github.com/cilium/ebpf"
)

// The programs of bpf/bench.c.
const (
	touch   = peersProgTouch   // drops after reading one octet
	hash4   = peersProgHash4   // drops sources in a hash of addresses
	lpm4    = peersProgLpm4    // drops sources in a trie of prefixes
	lpm6    = peersProgLpm6    // the same for IPv6
	limit4  = peersProgLimit4  // drops sources over a limit of their own, which an LRU map holds
	victim  = peersProgVictim  // tells a resolver's answers to its clients from those to others
	spoofed = peersProgSpoofed // counts a server's answers to nobody
)

// The constants of limit4 and victim.
const (
	limit4Mask     = peersVarLimit4Mask
	limit4Interval = peersVarLimit4Interval // nanoseconds a packet
	limit4Burst    = peersVarLimit4Burst    // nanoseconds that a source may have saved up
	limit4Heavy    = peersVarLimit4Heavy    // port
	victimClients  = peersVarVictimClients  // their network
	victimMask     = peersVarVictimMask
)

// peer is a program of bpf/bench.c with the maps that it has, if any.
type peer struct {
	program *ebpf.Program
	set     *ebpf.Map
	counts  *ebpf.Map
}

// loadPeer loads a program of bpf/bench.c. resize, if set, gets its set's specification; vars are its constants.
func loadPeer(name string, resize func(*ebpf.MapSpec), vars map[string]any) (p peer, err error) {
	spec, err := loadPeers()
	if err != nil {
		return p, err
	}
	for name, value := range vars {
		if err := spec.Variables[name].Set(value); err != nil {
			return p, fmt.Errorf("variable %s: %w", name, err)
		}
	}
	maps.DeleteFunc(spec.Programs, func(other string, _ *ebpf.ProgramSpec) bool { return other != name })
	maps.DeleteFunc(spec.Maps, func(other string, _ *ebpf.MapSpec) bool {
		return !strings.HasPrefix(other, name+"_") && !strings.HasPrefix(other, ".") // the latter hold the constants
	})
	if set := spec.Maps[name+"_set"]; set != nil && resize != nil {
		resize(set)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return p, fmt.Errorf("program %s: %w", name, err)
	}
	defer c.Close()
	return peer{c.DetachProgram(name), c.DetachMap(name + "_set"), c.DetachMap(name + "_counts")}, nil
}
