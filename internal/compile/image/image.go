package image

import (
	"fmt"
	"maps"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Image is a policy in the form that is loaded: the generated rules, the constants, and the maps with their content.
type Image struct {
	// Decide is the body of decide(): R1 points to a struct packet, R0 returns a decision.
	Decide asm.Instructions

	// Entry is the body of floodwall(), where the program begins: R1 points to the context, R0 returns the action. Without one,
	// general() decides every frame.
	Entry asm.Instructions

	// Constants are the values of the C program's constants by name. Those not named are zero.
	Constants map[string]any

	// Egress is whether the policy needs the program for packets that leave.
	Egress bool

	// Ingress is whether the policy needs the program for packets that XDP has passed.
	Ingress bool

	// Slots is how many counter slots the decisions use.
	Slots uint32

	// Shapes has the size of every map whose size the policy sets. Maps that the C does not know (which only the
	// generated rules read) are made with that name.
	Shapes map[string]Shape

	// Fill writes the content of the maps that Shapes names, each given as its zeroed memory; maps per CPU have none
	// that could be given. It may be called for any number of loaded programs.
	Fill func(memory map[string][]byte) error
}

// Shape is the size of an array map.
type Shape struct{ ValueSize, Entries uint32 }

// Bytes is the size of the map's memory. The kernel rounds the size of a value up to 8.
func (s Shape) Size() int { return (int(s.ValueSize) + 7) &^ 7 * int(s.Entries) }

// PowerOfTwo is the next power of two, at least n: the size of a table that a mask keeps an index in.
func PowerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// Globals are the maps behind global variables of the C program: their name in Shapes and of the map.
const (
	Filter4       = ".data.filter4"
	Index4        = ".data.index4"
	Background4   = ".data.back4"
	HostFilter4   = ".data.hosts4"
	Filter6       = ".data.filter6"
	DynamicInfo   = ".data.dynamic"
	SynKeys       = ".data.syn_keys" // of cookies and of flows, struct syn_keys of bpf/flow.h
	FlowFilter    = ".data.flowbits" // a bit for each bucket of Flows, whether it was ever used
	CookiesSent   = ".data.cookies"  // by the hash of a flow: when a cookie was last sent for it, a byte each
	HostEnds      = ".data.ends"     // what this host has and answers to, struct host_ends of bpf/ends.h
	ReplyFilter   = ".data.replies"  // struct reply_filter: keys, and the filters in front of ReplyFlows
	Services      = ".data.services" // ports of services, a bit each
	ClientPorts   = ".data.clients"  // ports of UDP whose clients are noted, a bit each
	PortFloods    = ".data.ports"    // of each port of UDP the flood that is told there, by its number and 1
	IDMasks       = ".data.masks"    // the bits of an identifier in three words, by its length in bytes: id_masks of bpf/datagram.h
	FloodStates   = ".data.floods"   // how each flood stands, struct flood_state of bpf/flood.h
	TrafficShares = ".data.traffic"  // of 2^32 packets that arrive, and that leave, so many are sampled: traffic_shares of bpf/sample.h
	ZoneTimes     = ".data.zones"    // the key of the hashes of answered names, and until when any zone is flooded: struct zone_times of bpf/zone.h
	Tick          = ".data.tick"     // the coarse clock as it was read last, with the tick in which it was
)

// Maps that the C program or the generated rules look up.
const (
	Lines4       = "lines4"
	Full4        = "full4"
	Hosts4       = "hosts4"
	HostClasses4 = "host_classes4"
	HostsFound   = "hosts4_found" // by CPU: whether the last source was a listed host
	Buckets6     = "buckets6"
	Dynamic      = "dynamic"

	Conditions      = "conditions" // what rules ask for beside addresses and fields, struct condition of bpf/condition.h
	Offences        = "offences"   // who exceeded a limit that bans: a ring
	Actions         = "actions"    // what is done beside the verdict, by slot
	Limits          = "limits"     // the buckets of all limits
	Samples         = "samples"    // the ring buffer of packets for user space, struct sample of bpf/sample.h
	Samplers        = "samplers"   // what each CPU has handed out of them
	Traffic         = "traffic"    // likewise, of packets that are drawn from all, whatever decides them
	TrafficSamplers = "traffic_samplers"
	Places          = "places"   // bytes at fixed places that rules ask of the payload
	Patterns        = "patterns" // texts that rules ask of the payload, and the table that finds them
	Names           = "names"    // names of DNS queries, each with the sets that list it

	AnsweredNames = "answered_names" // names that a guarded service has answered, struct answered_bucket of bpf/zone.h
	FloodedZones  = "flooded_zones"  // zones below which others were asked for, struct zone

	FloodLimits = "flood_limits" // by which limits floods at UDP services are told, struct flood of bpf/flood.h

	GameQueries = "game_queries" // clients whose queries with a cookie went to a game server, struct a2s_query of bpf/a2s.h
	GameAnswers = "game_answers" // what game servers have answered last, struct a2s_answer of bpf/a2s.h

	RakNetServers  = "raknet_servers"  // what servers of RakNet say of themselves, struct raknet_server of bpf/raknet.h
	RakNetRequests = "raknet_requests" // clients that have proved their address to one, struct raknet_request of bpf/raknet.h

	Guards     = "guards"      // what guards services, struct guard of bpf/verify.h
	GuardPorts = "guard_ports" // by port: the number of its guard from 1 on, a byte each
	Verified   = "verified"    // clients that are known to be who they say: until when

	Protections      = "protections"       // how services are protected, struct protection of bpf/protection.h
	ProtectionStates = "protection_states" // and how each protection stands, struct protection_state
	Askers           = "askers"            // when each CPU may ask the kernel about a connection next
	HostPorts        = "host_ports"        // by TCP port: which of them has the kernel given its connections, from 1 on
	Flows            = "flows"             // connections that have proved their address, struct flow_bucket of bpf/flow.h

	ReplyFlows  = ".data.replied" // what has left and may be answered, struct reply_bucket of bpf/replyflow.h
	ReplyCounts = "reply_counts"  // how many were displaced

	Listed     = "listed"     // the entry: for each class of sources, the rules that are left for it, as records
	Reflectors = "reflectors" // the entry: which ports may be 0 or of a known amplifier, a byte for each hash

	Masks   = "masks"     // straight rules: per class, a bit for each address expression
	Index   = "index"     // table rules: from the value of a field or a class to a row
	Rows    = "rows"      // table rules: a bit for each rule that the value does not rule out
	Results = "decisions" // table rules: the decision of each rule

	DynamicLengths = ".data.lengths" // dynamic sets: which prefix lengths the addresses of a block have
	DynamicTexts   = "dynamic_texts" // for user space only: why entries are there
	DynamicWhy     = "dynamic_why"   // and which text is whose
)

// ReadsKernel is the constant that lets the program at egress read the kernel's memory (bpf/replyclient.h). It depends on the kernel, so the
// loader sets it.
const ReadsKernel = floodwallVarReadsKernel

// verifiedClients is the largest number of verified clients. The one used longest ago goes first.
const verifiedClients = 1 << 16

// gameAnswers is the largest number of answers of game servers that are kept: three for each address and port of a service. Others are not kept.
const gameAnswers = 768

// gameQueries is the largest number of clients whose queries or requests wait for an answer of a game server. Each CPU may keep 128 free entries
// (kernel/bpf/bpf_lru_list.c, LOCAL_FREE_TARGET).
const gameQueries = 16_384

// rakNetServers is the largest number of addresses and ports of servers of RakNet of which is noted what they say. The one used longest ago gives way.
const rakNetServers = 1024

// Spec puts the image into the C part. The XDP program of the returned spec is for native mode; Linear makes that for
// generic mode.
func (im *Image) Spec() (*ebpf.CollectionSpec, error) {
	spec := Load()
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
		if m.Type == ebpf.Array && !strings.HasPrefix(name, ".rodata") { // small tables are in a section of their own
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
		insns, err = replace(insns, Program, im.entry())
	}
	if err == nil { // of the functions that are left, most of the time a few of all
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
		if beside.Instructions, err = backEdges(beside.Instructions); err != nil {
			return nil, err
		}
	}
	dropUnused(spec)
	prog.Flags |= unix.BPF_F_XDP_HAS_FRAGS
	return spec, nil
}

// entry returns the entry, or one that calls general() for all frames. Without it the C placeholder would keep
// functions that nothing needs.
func (im *Image) entry() asm.Instructions {
	if len(im.Entry) > 0 {
		return im.Entry
	}
	return asm.Instructions{asm.Call.Label(General), asm.Return()}
}

// Linear changes a spec to a program for linear frames only, as generic mode and kernels before 5.18 need: there the
// kernel linearizes each frame. The program for packets that leave does not depend on it, and is left out.
func Linear(spec *ebpf.CollectionSpec) {
	spec.Programs[Program].Flags &^= unix.BPF_F_XDP_HAS_FRAGS
	delete(spec.Programs, Egress)
	delete(spec.Programs, Ingress)
}

// resize gives an array map its size and makes its memory mappable, unless it is one per CPU. Type information is
// dropped: the kernel would insist on the declared size.
func resize(m *ebpf.MapSpec, s Shape) {
	m.KeySize, m.ValueSize, m.MaxEntries = 4, s.ValueSize, s.Entries
	if m.Type == ebpf.Array {
		m.Flags |= unix.BPF_F_MMAPABLE
	}
	m.Contents = nil
	m.Key, m.Value = nil, nil
}

// mapName is a map's name in the kernel, which takes 15 bytes of letters, digits, dots and underscores.
func mapName(name string) string { return name[:min(len(name), 15)] }
