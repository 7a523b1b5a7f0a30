package bench

import (
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
)

// peer is a program of bpf/bench.c with the map that it asks, if any.
type peer struct {
	program *ebpf.Program
	set     *ebpf.Map
}

// loadPeer loads a program of bpf/bench.c. resize, if set, gets its map's specification.
func loadPeer(name string, resize func(*ebpf.MapSpec)) (p peer, err error) {
	spec, err := loadPeers()
	if err != nil {
		return p, err
	}
	maps.DeleteFunc(spec.Programs, func(other string, _ *ebpf.ProgramSpec) bool { return other != name })
	maps.DeleteFunc(spec.Maps, func(set string, _ *ebpf.MapSpec) bool { return set != name+"_set" })
	if set := spec.Maps[name+"_set"]; set != nil && resize != nil {
		resize(set)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return p, fmt.Errorf("program %s: %w", name, err)
	}
	defer c.Close()
	p.program = c.DetachProgram(name)
	if spec.Maps[name+"_set"] != nil {
		p.set = c.DetachMap(name + "_set")
	}
	return p, nil
}
