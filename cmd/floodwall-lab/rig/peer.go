// SPDX-License-Identifier: Apache-2.0

// This file has the programs of bpf/bench.c. Floodwall is compared with some of them; others count answers.

package rig

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -target bpfel -go-package rig peers ../../../bpf/bench.c -- -O2 -g -mcpu=v3 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
)

// The programs of bpf/bench.c.
const (
	Touch  = peersProgTouch  // drops after reading one byte
	Answer = peersProgAnswer // answers a SYN with a frame like that of SYN protection, without any decision
	Hash4  = peersProgHash4  // drops sources in a hash of addresses
	LPM4   = peersProgLpm4   // drops sources in a trie of prefixes
	LPM6   = peersProgLpm6   // the same for IPv6
	Limit4 = peersProgLimit4 // drops sources over their own limit, which an LRU map holds

	// The minimum that a packet filter does with a kind of packet: it checks one rule, counts in two counters, and drops the packet.
	Least     = peersProgLeast     // UDP over IPv4
	LeastTCP  = peersProgLeastTcp  // TCP over IPv4
	LeastVLAN = peersProgLeastVlan // UDP over IPv4 behind a VLAN tag
	LeastIPv6 = peersProgLeastIpv6 // UDP over IPv6
	LeastLine = peersProgLeastLine // UDP over IPv4, with a read of one line of its set

	Victim  = peersProgVictim  // separates a resolver's answers to its clients from its answers to others
	Spoofed = peersProgSpoofed // counts a server's answers to spoofed addresses

	// Yardstick does about the same work as Floodwall's programs, and never changes.
	Yardstick = peersProgYardstick
)

// Line is the size of a line of LeastLine's set, in bytes: a cache line.
const Line = 64

// The constants of limit4, victim and least_line.
const (
	LeastLines     = peersVarLeastLines // number of lines of its set
	Limit4Mask     = peersVarLimit4Mask
	Limit4Interval = peersVarLimit4Interval // nanoseconds a packet
	Limit4Burst    = peersVarLimit4Burst    // nanoseconds of credit that a source may collect
	Limit4Heavy    = peersVarLimit4Heavy    // port
	VictimClients  = peersVarVictimClients  // their network
	VictimMask     = peersVarVictimMask
)

// LoadedPeer is a program of bpf/bench.c and its maps, if it has any.
type LoadedPeer struct {
	Program *ebpf.Program
	Set     *ebpf.Map
	Counts  *ebpf.Map
}

// Count returns the sums over all CPUs of a counter of frames and of their bytes.
func (p LoadedPeer) Count(n uint32) (frames, bytes uint64, err error) {
	var perCPU [][2]uint64
	if err := p.Counts.Lookup(n, &perCPU); err != nil {
		return 0, 0, fmt.Errorf("counters: %w", err)
	}
	for _, c := range perCPU {
		frames, bytes = frames+c[0], bytes+c[1]
	}
	return frames, bytes, nil
}

// readPeers reads the compiled C.
var readPeers = sync.OnceValues(loadPeers)

// LoadPeer loads a program of bpf/bench.c. If the function resize is not nil, it may change the specification of the program's set. The program's
// constants are vars.
func LoadPeer(name string, resize func(*ebpf.MapSpec), vars map[string]any) (p LoadedPeer, err error) {
	spec, err := readPeers()
	if err != nil {
		return p, err
	}
	spec = spec.Copy()
	for name, value := range vars {
		if err := spec.Variables[name].Set(value); err != nil {
			return p, fmt.Errorf("variable %s: %w", name, err)
		}
	}
	maps.DeleteFunc(spec.Programs, func(other string, _ *ebpf.ProgramSpec) bool { return other != name })
	maps.DeleteFunc(spec.Maps, func(other string, _ *ebpf.MapSpec) bool {
		own, _, _ := strings.Cut(name, "_")                                         // the smallest programs share a map
		return !strings.HasPrefix(other, own+"_") && !strings.HasPrefix(other, ".") // names with a "." hold the constants
	})
	if set := spec.Maps[name+"_set"]; set != nil && resize != nil {
		resize(set)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return p, fmt.Errorf("program %s: %w", name, err)
	}
	defer c.Close()
	return LoadedPeer{c.DetachProgram(name), c.DetachMap(name + "_set"), c.DetachMap(name + "_counts")}, nil
}

// LoadPeerProgram loads a program of bpf/bench.c that shares no maps.
func LoadPeerProgram(name string) (*ebpf.Program, error) {
	p, err := LoadPeer(name, nil, nil)
	if err != nil {
		return nil, err
	}
	return p.Program, errors.Join(p.Set.Close(), p.Counts.Close())
}
