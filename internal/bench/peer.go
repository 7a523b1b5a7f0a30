package bench

import (
	"fmt"
	"maps"
	"strings"

	"github.com/cilium/ebpf"
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
