package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Input is what the entry is generated from.
type Input struct {
	Program    *ir.Program
	Decisions  []uint32       // of each rule, as decide() returns them
	Dynamic    map[int]int    // the number of each dynamic set, by its index in Program.Sets
	Classes    Classes        // of source addresses
	Filter4    *Filter4       // nil: no IPv4 address has a class but 0
	Table6     bool           // whether any IPv6 address has one
	Handshakes []ir.Handshake // what was found out about each protection
	FlowMask   uint32         // flow_mask of bpf/flow.h
	Limits     []image.LimitInfo
	Constants  map[string]uint32 // where the map xdp.Constants has the keys of limits, by their names in C
	Sampling   Sampling
	Questions  bool // whether the program answers questions (bpf/explain.h)
}

// Sampling says which packets are copied to user space as samples of the traffic.
type Sampling struct {
	Share  uint32 // of 2^32 packets; 0: none
	Adapts bool   // that share is only the first: bpf/sample.h keeps it in traffic_shares
	Salt   uint32 // secret, so that nobody knows which packets are drawn
}

// Classes are the classes of source addresses. An address in no set has class 0.
type Classes interface {
	// Expr is the number of a match's expression of static sets, -1 if it has none.
	Expr(m ir.AddrMatch) int
	// Holds reports whether an expression holds for the addresses of a class.
	Holds(class, expr int) bool
	// Held lists the expressions for which Holds reports true.
	Held(class int) []int
	// Count is the number of classes.
	Count() int
}

// Filter4 says which IPv4 addresses may have a class other than 0.
type Filter4 struct {
	// A bitmap with a bit for each block of 2^Shift addresses, which is clear if all of them have class 0.
	Shift int
	Mask  uint32 // of the index of a 64-bit word; 0: there is no bitmap
	All   bool   // whether it is for all addresses; if not, the hash of hosts has others

	// Hosts is a hash of addresses that the entry asks itself, nil: none. With a filter of its own it has all addresses that are not in the
	// bitmap; otherwise a source that the bitmap may have is looked for there first.
	Hosts  *addrs.Hosts4
	Follow bool // whether that filter is for CPUs whose last source was not a listed host

	FirstBytes []ir.Range // all addresses of other classes begin with a byte of these ranges, which are normalized
}

// Entry is a generated entry.
type Entry struct {
	Insns   asm.Instructions // the body of floodwall(): R1 points to the context
	records records
}

// MapBytes is the size of the map xdp.Listed, 0 where the entry has none.
func (e *Entry) MapBytes() int {
	if len(e.records.list) == 0 {
		return 0
	}
	return e.records.capacity() * RecordSize
}

// Fill writes the content of that map.
func (e *Entry) Fill(to []byte) {
	for i := range e.records.list {
		e.records.list[i].encode(to[i*RecordSize:])
	}
}

// Registers that calls preserve. r3 and r4 hold the ports of the packet in host byte order until the first call.
const (
	context   = asm.R6
	base      = asm.R7 // the frame, or 4 bytes further where it has a VLAN tag: offsets to what follows the tag are the same
	size      = asm.R8 // of the whole frame, in bytes
	remaining = asm.R9 // of the frame, what is behind the Ethernet header and the tag, in bytes

	dport = asm.R3
	sport = asm.R4
)

// Labels that several sections jump to.
const (
	toGeneral = "entry_general"
	toPass    = "entry_pass" // where the slot of the decision is at slotAt
	toDrop    = "entry_drop"

	notAsked = "_unasked" // behind these two: of packets that carry no question, as that has been asked
)

// slotAt is the stack offset of the counter's slot.
const slotAt = -4

// Members of struct xdp_md of the kernel's include/uapi/linux/bpf.h.
const (
	ctxData    = 0
	ctxDataEnd = 4
	ctxMeta    = 8
)

// goldenRatio is the factor of the hash of classify() in bpf/classify.h.
var goldenRatio uint64 = 0x9e3779b97f4a7c15

// generator is an entry in the making.
type generator struct {
	Emitter
	Input
	records records
	tagged  bool // whether frames with a VLAN tag are decided here
}

// Generate generates the entry of a program.
func Generate(in Input) *Entry {
	g := &generator{Input: in, tagged: !asksVLAN(in.Program)}
	sections := map[*family][]*section{}
	for _, f := range families {
		for _, p := range f.protos {
			sections[f] = append(sections[f], newSection(g, f, p))
		}
	}
	g.ethernet()
	for _, f := range families {
		g.network(f, sections[f])
	}
	g.failures()
	g.count()
	g.Mark(toGeneral)
	g.Add(asm.Mov.Reg(asm.R1, context), asm.Call.Label(image.General), asm.Return())
	return &Entry{Insns: Reachable(g.Insns), records: g.records}
}

// asksVLAN reports whether any rule asks for the VLAN.
func asksVLAN(p *ir.Program) bool {
	for i := range p.Rules {
		for _, m := range p.Rules[i].Match {
			if m.Field == packet.VLAN {
				return true
			}
		}
	}
	return false
}

// frameBytes is the size of the smallest frame that the entry decides: Ethernet, IPv4, and 8 bytes of UDP or ICMP.
const frameBytes = 14 + 20 + 8

// ethernet reads the Ethernet header, and jumps to the section of the IP version.
func (g *generator) ethernet() {
	g.Say("Ethernet, with at most one VLAN tag")
	g.Add(
		asm.Mov.Reg(context, asm.R1),
		asm.LoadMem(base, context, ctxData, asm.Word),
		asm.LoadMem(size, context, ctxDataEnd, asm.Word),
	)
	g.inFrame(base, frameBytes, size)
	if g.asked(packet.SourceMAC) {
		g.Add(asm.LoadMem(asm.R1, base, 6, asm.Byte), asm.JSet.Imm(asm.R1, 1, toGeneral)) // the group bit
	}
	g.Add(asm.Sub.Reg(size, base), asm.Mov.Reg(remaining, size), asm.Sub.Imm(remaining, 14))
	g.etherTypes()
	if !g.tagged {
		g.Add(asm.Ja.Label(toGeneral))
		return
	}
	g.Add(
		asm.And.Imm(asm.R1, 0xffff),
		asm.JNE.Imm(asm.R1, networkOrder(etherTypeVLAN), toGeneral), asm.LoadMem(asm.R1, context, ctxDataEnd, asm.Word),
	)
	g.inFrame(base, frameBytes+4, asm.R1)
	g.Add(asm.Add.Imm(base, 4), asm.Sub.Imm(remaining, 4))
	g.etherTypes()
	g.Add(asm.Ja.Label(toGeneral))
}

const etherTypeVLAN = 0x8100 // IEEE 802.1Q

// etherTypes jumps to the section of the EtherType and of the IP version behind it, if there is one. r1 keeps the
// EtherType in its lower bits.
func (g *generator) etherTypes() {
	g.Add(asm.LoadMem(asm.R1, base, 12, asm.Word))
	for _, f := range families {
		g.Add(asm.And.Imm(asm.R1, f.begins|0xffff), asm.JEq.Imm(asm.R1, f.version<<16|networkOrder(f.etherType), f.name))
	}
}

// inFrame jumps to general() unless so many bytes from a register's place on are inside the frame.
func (g *generator) inFrame(from asm.Register, bytes int32, end asm.Register) {
	g.Add(asm.Mov.Reg(asm.R2, from), asm.Add.Imm(asm.R2, bytes), asm.JGT.Reg(asm.R2, end, toGeneral))
}

// networkOrder is a 16-bit field of a frame as a little-endian machine loads it. The BPF objects here are little
// endian.
func networkOrder(v uint16) int32 { return int32(v>>8 | v<<8) }

// asked reports whether a check is on, to drop or to count.
func (g *generator) asked(c packet.Check) bool { return (g.Program.Checks | g.Program.Observed).Has(c) }

// failures adds the exits of the checks. Exits that no section uses are removed with all other unreachable code.
func (g *generator) failures() {
	for check := range packet.NumChecks {
		if g.Program.Checks.Has(check) {
			g.Mark(failed(check))
			g.decide(image.Decision(uint32(check), uint8(ir.Drop)))
		}
	}
}

// failed is the label of the exit of a check.
func failed(c packet.Check) string { return "entry_failed_" + c.String() }

// decide ends the program with a decision, which is pass or drop.
func (g *generator) decide(decision uint32) { g.decideAs(decision, "") }

// decideAs is decide; with notAsked it is for a packet that is known to carry no question.
func (g *generator) decideAs(decision uint32, asked string) {
	slot, verdict := image.SlotAndVerdict(decision)
	g.Add(asm.StoreImm(asm.RFP, slotAt, int64(slot), asm.Word), asm.Ja.Label(exits[verdict].label+asked))
}

// exits are, by ir.Verdict, the label that ends with the verdict, and the value returned there: enum xdp_action.
var exits = []struct {
	label  string
	action int32
}{{toPass, 2}, {toDrop, 1}}

// count adds, for each verdict, code that counts the slot at slotAt and returns the action, or answers the question
// that the frame carries.
func (g *generator) count() {
	for verdict, exit := range exits {
		out := exit.label + "_out"
		g.Mark(exit.label)
		g.Say("count the decision, " + ir.Verdict(verdict).String())
		g.notQuestion(exit.label + "_question")
		g.Mark(exit.label + notAsked)
		g.Add(
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, slotAt),
			asm.LoadMapPtr(asm.R1, 0).WithReference(image.Counters),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, out),
		)
		g.increment()
		g.draw(exit.label + "_sample")
		g.Mark(out)
		g.Add(asm.Mov.Imm(asm.R0, exit.action), asm.Return())
		if g.Sampling.Share > 0 {
			g.sample(uint8(verdict), exit.label)
		}
		if g.Questions {
			g.question(uint8(verdict), exit.label)
		}
	}
}

// increment counts a packet and its bytes in the counter that r0 points to.
func (g *generator) increment() {
	for at, amount := range []asm.Instruction{asm.Add.Imm(asm.R1, 1), asm.Add.Reg(asm.R1, size)} {
		at := int16(8 * at)
		g.Add(asm.LoadMem(asm.R1, asm.R0, at, asm.DWord), amount, asm.StoreMem(asm.R0, at, asm.R1, asm.DWord))
	}
}

// question answers a question. It continues if the question is for general(), or if the frame has other metadata.
func (g *generator) question(verdict uint8, label string) {
	g.Mark(label + "_question")
	g.Add(
		asm.Mov.Reg(asm.R1, context),
		asm.LoadMem(asm.R2, asm.RFP, slotAt, asm.Word), asm.LSh.Imm(asm.R2, 8), asm.Or.Imm(asm.R2, int32(verdict)),
		asm.Call.Label(image.AnswerInEntry),
		asm.JEq.Imm(asm.R0, answerCount, label+notAsked),
		asm.JEq.Imm(asm.R0, answerGeneral, toGeneral),
		asm.Mov.Imm(asm.R0, 2),
		asm.Return(),
	)
}

// What answer_in_entry() of bpf/floodwall.c returns.
const (
	answerCount   = 0 // there is no question, or the frame is to be counted all the same
	answerGeneral = 2 // the question is for general()
)
