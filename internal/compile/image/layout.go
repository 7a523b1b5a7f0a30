package image

import (
	"fmt"
	"math"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Program is the name of the entry point, a program of type XDP.
const Program = "floodwall"

// Egress is the name of the entry point for packets that leave, a program of type SchedCLS.
const Egress = "egress"

// Ingress is the name of the entry point for packets that XDP has passed, a program of type SchedCLS.
const Ingress = "ingress"

// Counters is the map of counters: per CPU, one Counter for each slot. It outlives a generation.
const Counters = "counters"

// Slots that are the same for every policy; the slot of a check is its number. enum slot in bpf/decision.h.
const (
	SlotWaiting = 60 // packets that pass undecided: a later stage decides them
	SlotReplies = 61 // packets that the program itself has sent
	SlotNotIP   = 62
	SlotDefault = 63
	SlotRules   = 64 // the first slot for rules
)

// Counter is the value of one slot on one CPU. struct counter in bpf/count.h.
type Counter struct{ Packets, Bytes uint64 }

// MaxDynamicSets is how many dynamic sets a program can have, the host's own addresses among them.
const MaxDynamicSets = 8

// MaxSecrets is how many secrets of DNS cookies a guard can have. MAX_SECRETS of bpf/verify.h.
const MaxSecrets = 2

// DynamicInfoSize is the size of the record of one dynamic set in the map DynamicInfo.
const DynamicInfoSize = 64

// Sizes of the structs of bpf/protection.h and bpf/flow.h.
const (
	ProtectionStateSize = 24
	FlowBucketSize      = 64
	SynKeysSize         = 56
	FloodStateSize      = 56 // of bpf/flood.h
	IDMaskSize          = 24 // bytes of an entry of id_masks of bpf/datagram.h
)

// MaxFloods is how many UDP services can be protected. MAX_FLOODS of bpf/flood.h.
const MaxFloods = 255

// FlowSlots is how many connections a bucket of the map Flows holds.
const FlowSlots = FlowBucketSize / 8

// Flags of a decision, beside the verdict. enum verdict in bpf/decision.h.
const (
	Special     = 0x10 // the slot has an entry in the map Actions
	Conditional = 0x20 // it counts if the condition named in the packet holds; tables only
	Protected   = 0x40 // what passes goes through the protection that the slot's entry in the map Actions names
)

const verdictMask = 0x0f // of a decision; enum verdict in bpf/count.h

// Condition is the C function that generated code asks for what is beyond addresses and fields. It takes the context, the
// packet and the number of a condition.
const Condition = "condition_holds"

// C functions that the generated entry calls.
const (
	General        = "general"          // decides any frame: it takes the context, and returns the action
	SampleTraffic  = "sample_traffic"   // hands a packet out that the entry has decided
	AnswerInEntry  = "answer_in_entry"  // answers a question that the entry has decided
	Class4         = "class4"           // the class of an IPv4 address in host byte order
	Class4InFilter = "class4_in_filter" // of one that the map Filter4 may have
	Class4OfHost   = "class4_of_host"   // of a listed host, by its number (addrs.Hosts4)
	Class6         = "class6"           // of an IPv6 address, in two halves in host byte order
	ChargeHash     = "charge_hash"      // whether a limit is exceeded: by the hash of the prefixes, and what the limit says
	FindOpenFlow4  = "find_open_flow4"  // whether a TCP connection, by two IPv4 addresses in one word and its ports, has one of some states
	FindOpenFlow6  = "find_open_flow6"  // the same by the hash of two IPv6 addresses
	Addresses6     = "hash_addresses6"  // which this is, of their four halves
	IsReply        = "is_reply"         // whether a packet is a reply: addresses, ports, protocol, flags of TCP
	ProvedInFrame  = "proved_in_frame"  // whether a usual frame has an identifier that the service has issued: context, family, number of the flood
	StrayInFrame   = "stray_in_frame"   // whether nobody begins with such a datagram, likewise
	ChallengeQuery = "challenge_query"  // which challenges a query at a game server that surely proves nothing
	KnownInFrame   = "known_in_frame"   // whether a usual frame is of a known client: context, family, number of the flood with flags
	DecideKnown    = "decide_known"     // decides a segment to a service with cookies of its own, whose flow may be known: context, family, hash of the flow, and what bpf/segment.h says
	DecideUnknown  = "decide_unknown"   // the same for one whose flow is not known
	ProtectSegment = "protect_segment"  // does what a protection says of a segment: context, family, decision; it returns the action
	AnswerUsualSYN = "answer_usual_syn" // answers a usual SYN: context, family, decision, the elements of ProtectionStates and Protections; 0: it is for ProtectSegment
	AnswerPlainSYN = "answer_plain_syn" // the same for one whose header is shorter than theirs
	IsMember       = "is_member"        // whether a dynamic set, by its number, has an address, in two halves, of a family
)

// OwnOffset is where the map DynamicInfo has the memory of addrs.DynamicMemory.Own, behind the records of all sets.
const OwnOffset = MaxDynamicSets * DynamicInfoSize

// ConstantOffsets are the offsets of constants of the C program in the map Constants, by their names.
func ConstantOffsets(names ...string) map[string]uint32 {
	variables, offsets := Load().Variables, map[string]uint32{}
	for _, name := range names {
		offsets[name] = variables[name].Offset
	}
	return offsets
}

// Constants is the map of the constants of the C program. What reads one into the register that had its address becomes a constant of
// the instruction when the program is loaded.
const Constants = constantsMap

// Leaves is the flag of a sample's verdict that says that the packet left: SAMPLE_LEAVES of bpf/sample.h.
const Leaves = 0x20

// Share is of how many packets in 2^32 one in so many is sampled.
func Share(oneIn uint32) uint32 { return uint32(min(math.MaxUint32, (1<<32)/uint64(max(1, oneIn)))) }

// Decision is what the rules return: the slot to count in, and an ir.Verdict with flags.
func Decision(slot uint32, verdict uint8) uint32 { return slot<<8 | uint32(verdict) }

// SlotAndVerdict takes a decision apart, and leaves the flags out.
func SlotAndVerdict(decision uint32) (slot uint32, verdict uint8) {
	return decision >> 8, uint8(decision) & verdictMask
}

// Offsets in bytes in struct packet of bpf/packet.h, each of a 32-bit number in host byte order.
const (
	SrcClass   = int16(packet.NumFields) * 4
	DstClass   = SrcClass + 4
	SrcDynamic = SrcClass + 8
	DstDynamic = SrcClass + 12

	First         = SrcClass + 44 // what tables are to look at, of their alternatives
	NextCondition = First + 4     // the condition that they ask for

	// FoundPatterns is of a number of 64 bits: the patterns that the payload has, a bit each. All are set until they are searched.
	FoundPatterns = First + 20
)

// FieldOffset is the offset of a field's value in struct packet.
func FieldOffset(f packet.Field) int16 { return int16(f) * 4 }

// FunctionBounds are the indexes of the first instruction of a function in a joined program, and of the one behind its last.
func FunctionBounds(insns asm.Instructions, name string) (start, end int, err error) {
	start, end = -1, len(insns)
	for i := range insns {
		switch fn := btf.FuncMetadata(&insns[i]); {
		case fn != nil && fn.Name == name:
			start = i
		case start >= 0 && fn != nil:
			end = min(end, i)
		}
	}
	if start < 0 {
		return 0, 0, fmt.Errorf("the program has no function %s", name)
	}
	return start, end, nil
}

// replace puts body in the place of a function of the C part. The function's symbol and BTF move to the first instruction of body,
// since the kernel finds a function by them.
func replace(insns asm.Instructions, name string, body asm.Instructions) (asm.Instructions, error) {
	start, end, err := FunctionBounds(insns, name)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, fmt.Errorf("the code of %s is empty", name)
	}
	moved := append(asm.Instructions{}, body...)
	// The kernel wants line information at the start of every function when it is given any:
	// https://elixir.bootlin.com/linux/v6.12/source/kernel/bpf/verifier.c, check_btf_line.
	moved[0] = moved[0].WithSymbol(name).WithSource(insns[start].Source())
	moved[0] = btf.WithFuncMetadata(moved[0], btf.FuncMetadata(&insns[start]))

	out := append(asm.Instructions{}, insns[:start]...)
	out = append(out, moved...)
	return append(out, insns[end:]...), nil
}

// Load returns the C part as it was compiled, a copy for the caller. It panics when the embedded object is broken, which no
// input can cause.
func Load() *ebpf.CollectionSpec { return compiled().Copy() }

// compiled reads the embedded object once: that takes some 20 ms.
var compiled = sync.OnceValue(func() *ebpf.CollectionSpec {
	spec, err := loadFloodwall()
	if err != nil {
		panic(fmt.Sprintf("embedded program: %v", err))
	}
	return spec
})
