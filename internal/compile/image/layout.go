// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Program is the name of the entry point, a program of type XDP.
const Program = "floodwall"

// Egress is the name of the entry point for outgoing packets, a program of type SchedCLS.
const Egress = "egress"

// Ingress is the name of the entry point for packets that XDP has passed, a program of type SchedCLS.
const Ingress = "ingress"

// Counters is the map of counters. On each CPU it has a Counter for each slot. Later generations keep the map.
const Counters = "counters"

// Slots that are the same for every policy, as in enum slot in bpf/decision.h. The slot of a check is its number.
const (
	SlotWaiting = 60 // packets that pass undecided, and that a later stage decides
	SlotReplies = 61 // packets that the program itself has sent
	SlotNotIP   = 62
	SlotDefault = 63
	SlotRules   = 64 // the first slot for rules
)

// Counter is the value of one slot on one CPU: struct counter in bpf/count.h.
type Counter struct{ Packets, Bytes uint64 }

// MaxDynamicSets is the largest number of dynamic sets of a program, including the set of the host's own addresses.
const MaxDynamicSets = 8

// MaxSecrets is the largest number of DNS cookie secrets of a guard. MAX_SECRETS of bpf/verify.h.
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

// MaxFloods is the largest number of protected UDP services. MAX_FLOODS of bpf/flood.h.
const MaxFloods = 255

// FlowSlots is the number of connections that a bucket of the map Flows holds.
const FlowSlots = FlowBucketSize / 8

// Flags of a decision, in addition to the verdict: enum verdict in bpf/decision.h.
const (
	Special     = 0x10 // the slot has an entry in the map Actions
	Conditional = 0x20 // the decision is valid only if the condition named in the packet holds; tables only
	Protected   = 0x40 // passing packets go through a protection, which the slot's entry in the map Actions names
)

const verdictMask = 0x0f // of a decision; enum verdict in bpf/count.h

// Condition is the C function that generated code calls for all tests except those of addresses and fields. Its arguments are the context, the packet
// and the number of a condition.
const Condition = "condition_holds"

// Struct newcomers of bpf/newcomer.h has a time for each flood, followed by 2^20 words of 16 bits.
const (
	NewcomersSeen = 8 * (MaxFloods + 1) // the offset of the words in bytes
	NewcomersSize = NewcomersSeen + 2<<NewcomerBits

	NewcomerBits     = 20 // the upper bits of a flow's hash, which choose a word
	NewcomerTagBits  = 9  // the next bits of the hash, which the word has
	NewcomerTimeBits = 6  // the bits of the time in a word, below the tag
	NewcomerUnit     = 27 // a time counts units of 2^27 ns: ir.AgainUnit
)

// C functions that the generated entry calls. Unless a comment says otherwise, it describes the result.
const (
	General        = "general"          // decides any frame; argument: the context; result: the action
	SampleTraffic  = "sample_traffic"   // delivers a sample of a packet that the entry has decided
	AnswerInEntry  = "answer_in_entry"  // answers a question about a packet that the entry has decided
	Class4         = "class4"           // the class of an IPv4 address in host byte order
	Class4InFilter = "class4_in_filter" // the same, for an address that the map Filter4 may contain
	Class4OfHost   = "class4_of_host"   // the class of a listed host; argument: the host's number (addrs.Hosts4)
	Class6         = "class6"           // the class of an IPv6 address, in two halves in host byte order
	ChargeHash     = "charge_hash"      // whether a limit is exceeded, by the hash of the prefixes and the parameters of the limit
	FindOpenFlow4  = "find_open_flow4"  // whether a TCP connection has one of the given states; arguments: two IPv4 addresses in one word, the ports
	FindOpenFlow6  = "find_open_flow6"  // the same; argument: the hash of two IPv6 addresses
	Addresses6     = "hash_addresses6"  // that hash; arguments: both addresses in four halves
	IsReply        = "is_reply"         // whether a packet is a reply; arguments: addresses, ports, protocol, TCP flags
	ProvedInFrame  = "proved_in_frame"  // whether a usual frame has an identifier that the service has issued; arguments: context, family, number of the flood
	StrayInFrame   = "stray_in_frame"   // whether the datagram cannot be the first one of a client; the same arguments
	ChallengeQuery = "challenge_query"  // sends a challenge to a game client whose query certainly proves no address
	KnownInFrame   = "known_in_frame"   // whether a usual frame is from a known client; arguments: context, family, number of the flood with flags
	GoesOnInFrame  = "goes_on_in_frame" // whether a usual frame passes because the service has answered its client; the same arguments
	AgainInFrame   = "again_in_frame"   // whether a usual frame repeats a refused packet within the limits, to which it is charged; the arguments of KnownInFrame
	DecideKnown    = "decide_known"     // decides a segment to a service with Floodwall's cookies whose flow may be known; arguments: see bpf/segment.h
	DecideUnknown  = "decide_unknown"   // the same for a segment whose flow is not known
	ProtectSegment = "protect_segment"  // applies a protection to a segment; arguments: context, family, decision; result: the action
	AnswerUsualSYN = "answer_usual_syn" // answers a usual SYN; arguments: context, family, decision, elements of ProtectionStates and Protections; 0: not answered
	AnswerPlainSYN = "answer_plain_syn" // the same for a SYN whose header is shorter
	IsMember       = "is_member"        // whether a dynamic set has an address; arguments: number of the set, the address in two halves, family
)

// OwnOffset is the offset of addrs.DynamicMemory.Own in the map DynamicInfo, behind the records of all sets.
const OwnOffset = MaxDynamicSets * DynamicInfoSize

// ConstantOffsets returns the offsets in the map Constants of the C program's constants at a hook, by name.
func ConstantOffsets(h Hook, names ...string) map[string]uint32 {
	variables, offsets := h.load().Variables, map[string]uint32{}
	for _, name := range names {
		offsets[name] = variables[name].Offset
	}
	return offsets
}

// Constants is the map of the C program's constants. If an instruction reads a constant into the register that holds the constant's address, it is
// replaced at load time by an instruction with an immediate value (fold).
const Constants = constantsMap

// Leaves is a flag in the verdict of a sample: the sample is an outgoing packet. SAMPLE_LEAVES of bpf/sample.h.
const Leaves = 0x20

// JoinedShift is the position in the verdict of a sample of the number of further packets that the kernel has joined to the packet.
// SAMPLE_JOINED_SHIFT of bpf/sample.h.
const JoinedShift = 8

// Share returns the number of sampled packets in 2^32 packets if one packet in oneIn is sampled.
func Share(oneIn uint32) uint32 { return uint32(min(math.MaxUint32, (1<<32)/uint64(max(1, oneIn)))) }

// Decision returns the value that the rules return: the counter slot, and an ir.Verdict with flags.
func Decision(slot uint32, verdict uint8) uint32 { return slot<<8 | uint32(verdict) }

// SlotAndVerdict returns the slot and the verdict of a decision, without the flags.
func SlotAndVerdict(decision uint32) (slot uint32, verdict uint8) {
	return decision >> 8, uint8(decision) & verdictMask
}

// Offsets in bytes in struct packet of bpf/packet.h. At each is a 32-bit number in host byte order.
const (
	SrcClass   = int16(packet.NumFields) * 4
	DstClass   = SrcClass + 4
	SrcDynamic = SrcClass + 8
	DstDynamic = SrcClass + 12

	First         = SrcClass + 44 // the first alternative that the tables must examine
	NextCondition = First + 4     // the condition that must be tested next

	// FoundPatterns is the offset of a 64-bit number with a bit for each pattern that the payload contains. Until the payload has been searched, all
	// bits are set.
	FoundPatterns = First + 20
)

// FieldOffset returns the offset of a field's value in struct packet.
func FieldOffset(f packet.Field) int16 { return int16(f) * 4 }

// FunctionBounds returns the index of the first instruction of a function in a linked program, and the index after its last instruction.
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

// replace replaces a function of the C part by body. It moves the function's symbol and BTF to the first instruction of body, because the kernel
// finds a function by them.
func replace(insns asm.Instructions, name string, body asm.Instructions) (asm.Instructions, error) {
	start, end, err := FunctionBounds(insns, name)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, fmt.Errorf("the code of %s is empty", name)
	}
	moved := append(asm.Instructions{}, body...)
	// If a program has line information, the kernel requires it at the start of every function:
	// https://elixir.bootlin.com/linux/v6.12/source/kernel/bpf/verifier.c, check_btf_line.
	moved[0] = moved[0].WithSymbol(name).WithSource(insns[start].Source())
	moved[0] = btf.WithFuncMetadata(moved[0], btf.FuncMetadata(&insns[start]))

	out := append(asm.Instructions{}, insns[:start]...)
	out = append(out, moved...)
	return append(out, insns[end:]...), nil
}
