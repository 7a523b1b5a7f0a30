// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Input has the data from which the entry is generated.
type Input struct {
	Program    *ir.Program
	Decisions  []uint32       // the decision of each rule, as decide() returns it
	Dynamic    map[int]int    // maps the index of each dynamic set in Program.Sets to its number
	Classes    Classes        // of source addresses
	Filter4    *Filter4       // nil: all IPv4 addresses have class 0
	Table6     bool           // whether any IPv6 address has a class other than 0
	Handshakes []ir.Handshake // the parameters of each protection
	FlowMask   uint32         // flow_mask of bpf/flow.h
	Limits     []image.LimitInfo
	Constants  map[string]uint32 // maps the names, in C, of the limits' keys to their offsets in the map image.Constants
	Sampling   Sampling
	Questions  bool   // the program answers questions (bpf/explain.h)
	Key        uint64 // the key of questions
	Hook       image.Hook
}

// Sampling determines which packets are copied to user space as samples of the traffic.
type Sampling struct {
	Share  uint32 // the number of samples in 2^32 packets; 0: none
	Adapts bool   // Share is only the initial share; the current one is in traffic_shares of bpf/sample.h
	Salt   uint32 // a secret number, so that senders cannot predict which packets are sampled
}

// Classes are the classes of source addresses. An address that is in no set has class 0.
type Classes interface {
	// Expr returns the number of the expression for the static sets of a match, or -1 if the match has none.
	Expr(m ir.AddrMatch) int
	// Holds reports whether an expression holds for the addresses of a class.
	Holds(class, expr int) bool
	// Held returns the expressions that hold for a class.
	Held(class int) []int
	// Count returns the number of classes.
	Count() int
}

// Filter4 determines which IPv4 addresses may have a class other than 0.
type Filter4 struct {
	// Shift is for a bitmap with a bit for each block of 2^Shift addresses. A bit is clear if all addresses of its block have class 0.
	Shift int
	Mask  uint32 // the mask for the index of a 64-bit word in the bitmap; 0: there is no bitmap
	All   bool   // the bitmap covers all addresses of a class; if false, the hash of hosts has the others

	// Hosts is a hash of addresses that the entry itself searches; nil: none. If the hash has its own filter, it has all addresses that are not in
	// the bitmap. Otherwise the entry first searches the hash for a source that may be in the bitmap.
	Hosts  *addrs.Hosts4
	Follow bool // a CPU uses the filter of the hash only if its last source was not a listed host

	FirstBytes []ir.Range // normalized ranges: the first bytes of all addresses with a class other than 0
}

// Entry is a generated entry.
type Entry struct {
	Insns   asm.Instructions // the body of floodwall(): R1 points to the context
	records records
}

// MapBytes returns the size of the map image.Listed in bytes. It returns 0 if the entry does not use the map.
func (e *Entry) MapBytes() int {
	if len(e.records.list) == 0 {
		return 0
	}
	return e.records.capacity() * RecordSize
}

// Fill writes the content of the map image.Listed.
func (e *Entry) Fill(to []byte) {
	for i := range e.records.list {
		e.records.list[i].encode(to[i*RecordSize:])
	}
}

// Registers that function calls preserve. In addition, r3 and r4 hold the ports of the packet in host byte order, until the first call.
const (
	context   = asm.R6
	base      = asm.R7 // the start of the frame, or 4 bytes after it if the frame has a VLAN tag, so that the offsets of later headers are the same
	size      = asm.R8 // of the whole frame, in bytes
	remaining = asm.R9 // the number of bytes of the frame after the Ethernet header and the tag

	dport = asm.R3
	sport = asm.R4
)

// Labels to which several sections jump.
const (
	toGeneral = "entry_general"
	toPass    = "entry_pass" // the slot of the decision is on the stack at slotAt
	toDrop    = "entry_drop"

	notAsked = "_unasked" // suffix of these two labels, for packets that certainly carry no question
)

// slotAt is the stack offset of the counter's slot.
const slotAt = -4

// flowAt is the stack offset of the hash of a datagram's flow: reply_sum() of bpf/replyflow.h.
const flowAt = -16

// goldenRatio is the factor of the hash in classify() of bpf/classify.h.
var goldenRatio uint64 = 0x9e3779b97f4a7c15

// generator is the state of Generate.
type generator struct {
	Emitter
	Input
	records records
	at      *hook
	tagged  bool // the entry also decides frames with a VLAN tag
}

// Generate generates the entry of a program.
func Generate(in Input) *Entry {
	g := &generator{Input: in, at: hooks[in.Hook], tagged: !asksVLAN(in.Program)}
	sections := map[*family][]*section{}
	for _, f := range families {
		for _, p := range f.protos {
			sections[f] = append(sections[f], newSection(g, f, p))
		}
	}
	g.at.begin(g)
	for _, f := range families {
		g.network(f, sections[f])
	}
	g.failures()
	g.count()
	g.Mark(toGeneral)
	g.Add(asm.Mov.Reg(asm.R1, context), asm.Call.Label(image.General), asm.Return())
	return &Entry{Insns: Reachable(g.Insns), records: g.records}
}

// asksVLAN reports whether any rule tests the VLAN.
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

// inFrame adds code that jumps to general() unless this number of bytes is inside the frame, from the address in the register from.
func (g *generator) inFrame(from asm.Register, bytes int32, end asm.Register) {
	g.Add(asm.Mov.Reg(asm.R2, from), asm.Add.Imm(asm.R2, bytes), asm.JGT.Reg(asm.R2, end, toGeneral))
}

// networkOrder returns the value of a 16-bit field of a frame as a little-endian machine loads it. The BPF objects here are little endian.
func networkOrder(v uint16) int32 { return int32(v>>8 | v<<8) }

// asked reports whether a check is enabled, either to drop or to count.
func (g *generator) asked(c packet.Check) bool { return (g.Program.Checks | g.Program.Observed).Has(c) }

// failures adds the code to which packets that fail a check jump. If no section uses the code of a check, it is removed with all other unreachable
// code.
func (g *generator) failures() {
	for check := range packet.NumChecks {
		if g.Program.Checks.Has(check) {
			g.Mark(failed(check))
			g.decide(image.Decision(uint32(check), uint8(ir.Drop)))
		}
	}
}

// failed returns the label of the code for packets that fail a check.
func failed(c packet.Check) string { return "entry_failed_" + c.String() }

// decide adds code that ends the program with a decision. The decision must be pass or drop.
func (g *generator) decide(decision uint32) { g.decideAs(decision, "") }

// decideAs does the same as decide. If asked is notAsked, the packet is known to carry no question.
func (g *generator) decideAs(decision uint32, asked string) {
	slot, verdict := image.SlotAndVerdict(decision)
	g.Add(asm.StoreImm(asm.RFP, slotAt, int64(slot), asm.Word), asm.Ja.Label(exits[verdict]+asked))
}

// exits are the labels of the code that returns each ir.Verdict.
var exits = []string{toPass, toDrop}

// count adds code for each verdict. The code counts the packet in the slot at slotAt and returns the action. If the frame carries a question, the
// code answers it instead.
func (g *generator) count() {
	for verdict, label := range exits {
		out := label + "_out"
		g.Mark(label)
		g.Say("count the decision, " + ir.Verdict(verdict).String())
		g.notQuestion(label + "_question")
		g.Mark(label + notAsked)
		g.Add(
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, slotAt),
			asm.LoadMapPtr(asm.R1, 0).WithReference(image.Counters),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, out),
		)
		g.increment()
		g.draw(label + "_sample")
		g.Mark(out)
		g.Add(asm.Mov.Imm(asm.R0, g.at.actions[verdict]), asm.Return())
		if g.Sampling.Share > 0 {
			g.sample(uint8(verdict), label)
		}
		if g.Questions {
			g.question(uint8(verdict), label)
		}
	}
}

// increment adds code that counts a packet and its bytes in the counter to which r0 points.
func (g *generator) increment() {
	for at, amount := range []asm.Instruction{asm.Add.Imm(asm.R1, 1), asm.Add.Reg(asm.R1, size)} {
		at := int16(8 * at)
		g.Add(asm.LoadMem(asm.R1, asm.R0, at, asm.DWord), amount, asm.StoreMem(asm.R0, at, asm.R1, asm.DWord))
	}
}

// question adds code that answers a question. If the question is for general(), the code jumps to general(). If the frame must be counted in spite of
// the question, or has other metadata, the code counts it.
func (g *generator) question(verdict uint8, label string) {
	g.Mark(label + "_question")
	g.Add(
		asm.Mov.Reg(asm.R1, context),
		asm.LoadMem(asm.R2, asm.RFP, slotAt, asm.Word), asm.LSh.Imm(asm.R2, 8), asm.Or.Imm(asm.R2, int32(verdict)),
		asm.Call.Label(image.AnswerInEntry),
		asm.JEq.Imm(asm.R0, answerCount, label+notAsked),
		asm.JEq.Imm(asm.R0, answerGeneral, toGeneral),
		asm.Mov.Imm(asm.R0, g.at.actions[ir.Pass]),
		asm.Return(),
	)
}

// Results of answer_in_entry() of bpf/floodwall.c.
const (
	answerCount   = 0 // there is no question, or the frame must be counted in spite of it
	answerGeneral = 2 // the question is for general()
)
