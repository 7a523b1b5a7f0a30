// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"maps"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Image is a policy in the form that the loader takes: the generated rules, the constants, and the maps with their content.
type Image struct {
	// Decide is the body of decide(). R1 points to a struct packet. R0 returns a decision.
	Decide asm.Instructions

	// Entry is the body of floodwall(), the entry point of the program, at XDP. R1 points to the context. R0 returns the action. If Entry is empty, every
	// frame is decided by general().
	Entry asm.Instructions

	// EntryAt returns the entry for a hook of tc. If it is nil, every frame is decided by general() there.
	EntryAt func(h Hook) asm.Instructions

	// Constants are the values of the C program's constants, by name. All other constants are zero.
	Constants map[string]any

	// Egress reports whether the policy needs the program for outgoing packets.
	Egress bool

	// Ingress reports whether the policy needs the program for packets that XDP has already passed.
	Ingress bool

	// Slots is the number of counter slots that the decisions use.
	Slots uint32

	// Shapes has the size of every map whose size depends on the policy. If the C part does not declare a name in Shapes, only the generated rules
	// read that map.
	Shapes map[string]Shape

	// Fill writes the content of the maps in Shapes. memory has the zeroed memory of each of these maps, except per-CPU maps, whose memory cannot be
	// mapped. Fill may be called for any number of loaded programs.
	Fill func(memory map[string][]byte) error
}

// Shape has the value size in bytes and the number of entries of an array map.
type Shape struct{ ValueSize, Entries uint32 }

// Size returns the size of the map's memory in bytes. The kernel rounds the size of a value up to 8.
func (s Shape) Size() int { return (int(s.ValueSize) + 7) &^ 7 * int(s.Entries) }

// PowerOfTwo returns the smallest power of two that is at least n. A table of that size can reduce an index by a mask.
func PowerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// Globals are the maps behind global variables of the C program. The constants are the names of the maps, which are also the keys in Shapes.
const (
	Filter4       = ".data.filter4"
	Index4        = ".data.index4"
	Background4   = ".data.back4"
	HostFilter4   = ".data.hosts4"
	Filter6       = ".data.filter6"
	DynamicInfo   = ".data.dynamic"
	SynKeys       = ".data.syn_keys" // of cookies and of flows, struct syn_keys of bpf/flow.h
	FlowFilter    = ".data.flowbits" // a bit for each bucket of Flows: whether the bucket was ever used
	CookiesSent   = ".data.cookies"  // a byte for each hash of a flow: the time at which a cookie was last sent
	HostEnds      = ".data.ends"     // the addresses of this host, struct host_ends of bpf/ends.h
	ReplyFilter   = ".data.replies"  // struct reply_filter: keys, and the filters in front of ReplyFlows
	Services      = ".data.services" // a bit for each port of a service
	ClientPorts   = ".data.clients"  // a bit for each UDP port whose clients are recorded
	PortFloods    = ".data.ports"    // for each UDP port, 1 plus the number of the flood that is detected there; 0: none
	IDMasks       = ".data.masks"    // the bits of an identifier in three words, by its length in bytes: id_masks of bpf/datagram.h
	FloodStates   = ".data.floods"   // the state of each flood, struct flood_state of bpf/flood.h
	Newcomers     = ".data.again"    // packets of new clients that were refused during a flood, struct newcomers of bpf/newcomer.h
	TrafficShares = ".data.traffic"  // how many of 2^32 incoming, and of outgoing, packets are sampled: traffic_shares of bpf/sample.h
	ZoneTimes     = ".data.zones"    // the key of the hashes of answered names, and the time until which any zone is flooded: struct zone_times of bpf/zone.h
	Tick          = ".data.tick"     // the last reading of the coarse clock, and its tick
)

// Maps that the C program or the generated rules look up.
const (
	Lines4       = "lines4"
	Full4        = "full4"
	Hosts4       = "hosts4"
	HostClasses4 = "host_classes4"
	HostsFound   = "hosts4_found" // for each CPU: whether the last source was a listed host
	Buckets6     = "buckets6"
	Dynamic      = "dynamic"

	Conditions      = "conditions" // tests of rules other than addresses and fields, struct condition of bpf/condition.h
	Offences        = "offences"   // sources that exceeded a limit that bans: a ring buffer
	Actions         = "actions"    // actions other than the verdict, by slot
	Limits          = "limits"     // the buckets of all limits
	Samples         = "samples"    // the ring buffer of packets for user space, struct sample of bpf/sample.h
	Samplers        = "samplers"   // for each CPU: the number of delivered samples
	Traffic         = "traffic"    // the ring buffer of packets sampled from all traffic
	TrafficSamplers = "traffic_samplers"
	Places          = "places"   // payload tests: bytes at fixed offsets
	Patterns        = "patterns" // payload tests: texts, and the table that finds them
	Names           = "names"    // names of DNS queries, each with the sets that list it

	AnsweredNames = "answered_names" // names that a guarded service has answered, struct answered_bucket of bpf/zone.h
	FloodedZones  = "flooded_zones"  // zones below which unanswered names were asked for, struct zone

	FloodLimits = "flood_limits" // the limits by which floods at UDP services are detected, struct flood of bpf/flood.h

	GameQueries = "game_queries" // clients whose queries with a cookie went to a game server, struct a2s_query of bpf/a2s.h
	GameAnswers = "game_answers" // the latest answers of game servers, struct a2s_answer of bpf/a2s.h

	RakNetServers  = "raknet_servers"  // the self-descriptions of RakNet servers, struct raknet_server of bpf/raknet.h
	RakNetRequests = "raknet_requests" // clients that have proved their address to a RakNet server, struct raknet_request of bpf/raknet.h

	Guards     = "guards"      // the guards of services, struct guard of bpf/verify.h
	GuardPorts = "guard_ports" // for each port: the number of its guard, counted from 1, in a byte
	Verified   = "verified"    // clients that have proved their address, each with its expiry time

	Protections      = "protections"       // the protections of services, struct protection of bpf/protection.h
	ProtectionStates = "protection_states" // the state of each protection, struct protection_state
	Askers           = "askers"            // the time at which each CPU may next ask the kernel about a connection
	HostPorts        = "host_ports"        // for each TCP port: the number, counted from 1, of the protection that passes its connections to the kernel
	Flows            = "flows"             // connections that have proved their address, struct flow_bucket of bpf/flow.h

	ReplyFlows  = ".data.replied" // outgoing packets to which a reply is expected, struct reply_bucket of bpf/replyflow.h
	ReplyCounts = "reply_counts"  // the number of displaced reply flows

	Listed     = "listed"     // read by the entry: for each class of sources, the rules that can still match, as records
	Reflectors = "reflectors" // read by the entry: a byte for each hash of a port: whether the port may be 0 or that of a known amplifier

	Masks   = "masks"     // straight rules: for each class, a bit for each address expression
	Index   = "index"     // table rules: maps the value of a field, or a class, to a row
	Rows    = "rows"      // table rules: a bit for each rule that the value does not exclude
	Results = "decisions" // table rules: the decision of each rule

	DynamicLengths = ".data.lengths" // dynamic sets: the prefix lengths of the entries in a block of addresses
	DynamicTexts   = "dynamic_texts" // for user space only: the reasons of entries, as texts
	DynamicWhy     = "dynamic_why"   // for user space only: the number of each entry's text
)

// ReadsKernel is the constant that lets the program at egress read the kernel's memory (bpf/replyclient.h). It depends on the kernel, so the
// loader sets it.
const ReadsKernel = floodwallVarReadsKernel

// verifiedClients is the largest number of verified clients. The least recently used one is replaced first.
const verifiedClients = 1 << 16

// gameAnswers is the largest number of game server answers that are stored: three for each address and port of a service. Further answers are not
// stored.
const gameAnswers = 768

// gameQueries is the largest number of clients whose queries or requests wait for an answer from a game server. Each CPU may keep 128 free entries
// (kernel/bpf/bpf_lru_list.c, LOCAL_FREE_TARGET).
const gameQueries = 16_384

// rakNetServers is the largest number of RakNet servers, by address and port, whose self-description is kept. The least recently used one is replaced
// first.
const rakNetServers = 1024

// Spec returns the C part together with the image, for XDP. Its program is for native mode. Linear changes it for generic mode.
func (im *Image) Spec() (*ebpf.CollectionSpec, error) { return im.SpecAt(XDP) }

// SpecAt returns the C part together with the image, for a hook.
func (im *Image) SpecAt(h Hook) (*ebpf.CollectionSpec, error) {
	spec := h.load()
	for name, value := range im.Constants {
		v, ok := spec.Variables[name]
		if !ok {
			return nil, fmt.Errorf("constant %s: the program has none of that name", name)
		}
		if err := v.Set(value); err != nil {
			return nil, fmt.Errorf("constant %s: %w", name, err)
		}
	}
	for name, m := range spec.Maps {
		if m.Type == ebpf.Array && !strings.HasPrefix(name, ".rodata") { // .rodata…: small constant tables have sections of their own
			resize(m, Shape{max(m.ValueSize, 8), 1})
		}
	}
	maps.DeleteFunc(spec.Variables, func(_ string, v *ebpf.VariableSpec) bool { return v.SectionName != ".rodata" })
	for name, shape := range im.Shapes {
		m := spec.Maps[name]
		if m == nil {
			m = &ebpf.MapSpec{Name: mapName(name), Type: ebpf.Array}
			spec.Maps[name] = m
		}
		resize(m, shape)
	}
	prog := spec.Programs[Program]
	insns, err := replace(prog.Instructions, "decide", im.Decide)
	if err == nil {
		insns, err = replace(insns, Program, im.entry(h))
	}
	if err == nil { // usually few functions remain
		insns, err = backEdges(reachable(without(insns, im.Constants)))
	}
	if err != nil {
		return nil, err
	}
	prog.Instructions = fold(insns, spec.Variables)
	if im.Egress {
		spec.Maps[Verified].MaxEntries = verifiedClients
	}
	if isSet(im.Constants["serves"]) {
		spec.Maps[GameAnswers].MaxEntries, spec.Maps[GameQueries].MaxEntries = gameAnswers, gameQueries
	}
	if isSet(im.Constants["admits"]) {
		spec.Maps[RakNetServers].MaxEntries, spec.Maps[RakNetRequests].MaxEntries = rakNetServers, gameQueries
	}
	for name, needed := range map[string]bool{Egress: im.Egress, Ingress: im.Ingress} {
		if !needed {
			delete(spec.Programs, name)
			continue
		}
		beside := spec.Programs[name]
		beside.Name = Program + "_" + name[:2] // by which programs of all instances are known
		if beside.Instructions, err = backEdges(beside.Instructions); err != nil {
			return nil, err
		}
	}
	dropUnused(spec, h)
	if h == XDP {
		prog.Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	return spec, nil
}

// entry returns the entry, or a default one that calls general() for all frames. The C placeholder would keep functions
// that nothing needs.
func (im *Image) entry(h Hook) asm.Instructions {
	switch {
	case h == XDP && len(im.Entry) > 0:
		return im.Entry
	case h != XDP && im.EntryAt != nil:
		return im.EntryAt(h)
	}
	return asm.Instructions{asm.Call.Label(General), asm.Return()}
}

// Linear changes a spec so that its program accepts only linear frames. Generic mode and kernels before 5.18 need such a program, and there the
// kernel linearizes each frame. Linear removes the programs Egress and Ingress, which are the same in both modes.
func Linear(spec *ebpf.CollectionSpec) {
	spec.Programs[Program].Flags &^= unix.BPF_F_XDP_HAS_FRAGS
	Alone(spec)
}

// Alone removes the programs Egress and Ingress from a spec.
func Alone(spec *ebpf.CollectionSpec) {
	delete(spec.Programs, Egress)
	delete(spec.Programs, Ingress)
}

// resize sets the size of an array map and makes its memory mappable, unless it is a per-CPU map. It removes the type information, because the kernel
// would compare it with the size.
func resize(m *ebpf.MapSpec, s Shape) {
	m.KeySize, m.ValueSize, m.MaxEntries = 4, s.ValueSize, s.Entries
	if m.Type == ebpf.Array {
		m.Flags |= unix.BPF_F_MMAPABLE
	}
	m.Contents = nil
	m.Key, m.Value = nil, nil
}

// mapName returns a map's name in the kernel, which accepts up to 15 bytes: letters, digits, dots and underscores.
func mapName(name string) string { return name[:min(len(name), 15)] }
