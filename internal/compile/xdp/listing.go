// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Listing returns as text those parts of the loaded program that depend on the policy. These are the constants that specialize the C program, the
// maps, and the body of decide(). The body has one instruction per line, in the notation of the kernel's verifier log. Keys and seeds are random, and
// Listing does not show their values.
func (x *Program) Listing() string {
	var b strings.Builder
	fmt.Fprintf(&b, "form %s, estimated at %.1f ns for a packet that no rule matches\n", x.Form, x.Cost)
	b.WriteString("\nconstants\n")
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(x.Constants)) {
		fmt.Fprintf(w, "  %s\t%s\n", name, constantText(name, x.Constants[name]))
	}
	w.Flush()
	b.WriteString("\nmaps\n")
	for _, name := range slices.Sorted(maps.Keys(x.Shapes)) {
		shape := x.Shapes[name]
		fmt.Fprintf(w, "  %s\t%d x %d bytes\t%s\n", name, shape.Entries, shape.ValueSize, mapUses[name])
	}
	w.Flush()
	b.WriteString("\ndecide\n")
	x.code(&b)
	return b.String()
}

// public has the constants that may be shown. All others are keys and seeds, which senders of packets must not know. A constant that is not in this
// list is treated as secret.
var public = []string{
	"admits", "answered_mask", "answers", "ask_conntrack", "buckets6_mask", "challenges", "classify_dst", "classify_src", "default_decision", "dns_port", "dns_ports",
	"dns_verify", "dynamic_dst_sets", "dynamic_lengths_mask", "dynamic_src_sets", "enabled_checks", "entry_calls", "filter4_hosts", "filter4_mask",
	"filter4_shift", "floods", "flow_mask", "guarded", "have_background4", "have_lines4", "hosts4_class", "hosts4_filter", "hosts4_follow",
	"hosts4_narrow", "hosts4_wide", "judging", "leads", "lengths6", "lengths6_count", "local_set", "name_buckets", "name_depths",
	"name_root_sets", "notes_clients", "notes_flows", "notes_replies", "num_leads", "observed_checks", "protect_host", "protect_listener", "protect_router", "protects",
	"reads_datagrams", "reads_kernel", "reads_mss", "replies_first", "reporting", "samples_adapt", "samples_leaving", "samples_traffic",
	"sampling", "serves", "short_patterns", "specials", "table_conditions", "unanswered_bit",
	"verify_cookies", "window_length",
}

// constantText returns a constant's value as text. Sets of bits are hexadecimal.
func constantText(name string, value any) string {
	if !slices.Contains(public, name) {
		return "random"
	}
	switch v := value.(type) {
	case bool:
		return fmt.Sprint(v)
	case uint32:
		if name == "default_decision" {
			return decisionText(v)
		}
	case [129]uint8:
		n := slices.Index(v[:], 0)
		return fmt.Sprint(v[:max(n, 1)])
	}
	return fmt.Sprintf("%#x", value)
}

// mapUses describes the content of each map.
var mapUses = map[string]string{
	image.Filter4:        "IPv4: a bit for each block of addresses, set when any has a class",
	image.Index4:         "IPv4: for each /24, which line describes it",
	image.Background4:    "IPv4: for each /16, the class of the /24s without a line",
	image.Lines4:         "IPv4: a bit for each address of a /24, and two classes",
	image.Full4:          "IPv4: the class of each address of a /24 with more than two",
	image.Hosts4:         "IPv4: a hash of the addresses that are listed one by one",
	image.HostClasses4:   "IPv4: the class of each of these",
	image.HostFilter4:    "IPv4: two bits of a word for each of these",
	image.Filter6:        "IPv6: a bit for each hash of a /32, set when any prefix is there",
	image.Buckets6:       "IPv6: a hash of prefixes",
	image.DynamicInfo:    "dynamic sets: where each begins, which addresses they may have",
	image.DynamicLengths: "dynamic sets: the prefix lengths of addresses that begin alike",
	image.Dynamic:        "dynamic sets: a hash of prefixes, with the time each expires",
	image.DynamicTexts:   "dynamic sets: why entries are there, for user space",
	image.DynamicWhy:     "dynamic sets: which of those texts an entry has",
	image.Listed:         "entry: for each class of sources, the rules that are left for it",
	image.Reflectors:     "entry: which ports may be 0 or of a known amplifier",
	image.Masks:          "for each class, the address expressions that hold, a bit each",
	image.Index:          "from each value of each dimension to a row",
	image.Rows:           "for a value, the rules that it leaves possible, a bit each",
	image.Results:        "for each bit of a row, its rule's decision",
	image.Conditions:     "what rules ask for beside addresses and fields",
	image.LimitInfos:     "limits: what a packet costs, how much may be owed, by which prefixes",
	image.Limits:         "limits: a hash of prefixes, with when each has paid its debt",
	image.Evictions:      "limits: debts that were forgiven for lack of space",
	image.Patterns:       "payload: all texts, and by which bytes each is found",
	image.Places:         "payload: bytes at fixed places",
	image.Names:          "DNS: a hash of names, with the sets that list each",
	image.AnsweredNames:  "DNS: a hash of names that were answered",
	image.FloodedZones:   "DNS: zones that are or were flooded",
	image.ZoneTimes:      "DNS: the key of these hashes, and until when any zone is flooded",
	image.Guards:         "guards: secrets of cookies, and the limit of responses",
	image.GuardPorts:     "guards: the guard of each port",
	image.Actions:        "what is done beside the verdict: answer one in so many, sample, report, protect",

	image.TrafficShares: "samples of the traffic: of how many packets one is taken",

	image.Tick: "the coarse clock, which is read once a tick",

	image.Protections:      "protections: how SYNs are answered, and how many",
	image.ProtectionStates: "protections: until when each is active",
	image.Flows:            "protections: a hash of connections that have proved their address",
	image.FlowFilter:       "protections: a bit for each bucket of that hash, set when it was ever used",
	image.CookiesSent:      "protections: by that hash, when a cookie was last sent",
	image.SynKeys:          "protections: the keys of cookies and of that hash",
	image.ReplyFlows:       "replies: a hash of flows of which a packet has left",
	image.ReplyFilter:      "replies: keys, and two filters in front of that hash: a bit for each bucket, and bits for each flow",
	image.Services:         "replies: a bit for each port at which a rule decides before",

	image.ClientPorts:    "floods: a bit for each port whose clients are noted",
	image.Newcomers:      "floods: a hash of packets that were refused, with the time of each, and until when the limit of those that come again is exceeded",
	image.PortFloods:     "floods: of each port the flood that is detected there",
	image.FloodLimits:    "floods: by which limits each is detected",
	image.GameQueries:    "floods: clients whose queries wait for an answer of a game server",
	image.GameAnswers:    "floods: what game servers have answered last",
	image.RakNetServers:  "floods: what servers of RakNet say of themselves",
	image.RakNetRequests: "floods: clients of RakNet that have proved their address, and wait for the server's reply",
	image.IDMasks:        "floods: the bits of an identifier, by its length",
	image.FloodStates:    "floods: until when each goes on and its limits are exceeded, the length of identifiers",

	image.HostEnds:  "answers: Ethernet addresses of this host, and broadcast addresses",
	image.HostPorts: "protections: that of each port of this host",
}

// code writes the generated instructions. For loads from the packet it adds the name of the field. For results it adds the verdict.
func (x *Program) code(b *strings.Builder) {
	offset := asm.RawInstructionOffset(0)
	for _, ins := range x.Decide {
		if label := ins.Symbol(); label != "" {
			fmt.Fprintf(b, "%s:\n", label)
		}
		if source := ins.Source(); source != nil {
			fmt.Fprintf(b, "      ; %s\n", source)
		}
		line := fmt.Sprintf("%5d %s", offset, instructionText(&ins))
		if note := instructionNote(&ins); note != "" {
			line = fmt.Sprintf("%-40s; %s", line, note)
		}
		b.WriteString(line + "\n")
		offset += ins.Width()
	}
}

// instructionText formats an instruction in the notation of the kernel's verifier log.
func instructionText(ins *asm.Instruction) string {
	op := ins.OpCode
	switch op.Class() {
	case asm.ALU64Class:
		return fmt.Sprintf("r%d %s %s", ins.Dst, aluSigns[op.ALUOp()], operand(ins))
	case asm.JumpClass:
		return jumpText(ins)
	case asm.LdXClass:
		return fmt.Sprintf("r%d = *(%s *)(%s)", ins.Dst, sizeNames[op.Size()], place(ins.Src, ins.Offset))
	case asm.StXClass:
		return fmt.Sprintf("*(%s *)(%s) = r%d", sizeNames[op.Size()], place(ins.Dst, ins.Offset), ins.Src)
	case asm.LdClass:
		return loadText(ins)
	}
	return fmt.Sprint(*ins)
}

var (
	aluSigns = map[asm.ALUOp]string{
		asm.Mov: "=", asm.Add: "+=", asm.Sub: "-=", asm.Mul: "*=", asm.And: "&=", asm.Or: "|=", asm.Xor: "^=",
		asm.LSh: "<<=", asm.RSh: ">>=",
	}
	jumpSigns = map[asm.JumpOp]string{
		asm.JEq: "==", asm.JNE: "!=", asm.JGT: ">", asm.JGE: ">=", asm.JLT: "<", asm.JLE: "<=",
	}
	sizeNames = map[asm.Size]string{asm.Byte: "u8", asm.Half: "u16", asm.Word: "u32", asm.DWord: "u64"}
)

func operand(ins *asm.Instruction) string {
	if ins.OpCode.Source() == asm.RegSource {
		return fmt.Sprintf("r%d", ins.Src)
	}
	return fmt.Sprint(ins.Constant)
}

func place(base asm.Register, offset int16) string { return fmt.Sprintf("r%d %+d", base, offset) }

func jumpText(ins *asm.Instruction) string {
	switch op := ins.OpCode.JumpOp(); op {
	case asm.Exit:
		return "exit"
	case asm.Call:
		if ins.IsFunctionReference() {
			return "call " + ins.Reference()
		}
		return fmt.Sprintf("call %s", asm.BuiltinFunc(ins.Constant))
	case asm.Ja:
		return "goto " + ins.Reference()
	default:
		return fmt.Sprintf("if r%d %s %s goto %s", ins.Dst, jumpSigns[op], operand(ins), ins.Reference())
	}
}

// loadText returns the text of an instruction that loads a 64-bit constant, or the address of a map or of a map's value.
func loadText(ins *asm.Instruction) string {
	switch {
	case ins.Src == asm.PseudoMapValue:
		return fmt.Sprintf("r%d = &%s%+d", ins.Dst, ins.Reference(), ins.Constant>>32)
	case ins.Src == asm.PseudoMapFD:
		return fmt.Sprintf("r%d = map %s", ins.Dst, ins.Reference())
	}
	return fmt.Sprintf("r%d = %#x", ins.Dst, uint64(ins.Constant))
}

// instructionNote returns a note about the value that an instruction loads. Word loads through r6 always read the packet.
func instructionNote(ins *asm.Instruction) string {
	op := ins.OpCode
	switch {
	case op.Class() == asm.LdXClass && op.Size() == asm.Word && ins.Src == asm.R6:
		return memberName(ins.Offset)
	case op.IsDWordLoad() && ins.Src == 0 && ins.Dst == asm.R0:
		return decisionText(uint32(ins.Constant))
	}
	return ""
}

// memberName returns the name of a member of struct packet.
func memberName(offset int16) string {
	switch offset {
	case image.SrcClass:
		return "class of the source"
	case image.DstClass:
		return "class of the destination"
	case image.SrcDynamic:
		return "dynamic sets that have the source"
	case image.DstDynamic:
		return "dynamic sets that have the destination"
	}
	return packet.Field(offset / 4).String()
}

func decisionText(decision uint32) string {
	slot, v := image.SlotAndVerdict(decision)
	text := fmt.Sprintf("%s, counted in slot %d", ir.Verdict(v), slot)
	if decision&image.Special != 0 {
		text += ", and what the map of actions says"
	}
	if decision&image.Protected != 0 {
		text += ", through a protection"
	}
	return text
}
