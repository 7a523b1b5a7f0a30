// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// flow is the register of the hash of the packet's flow. Code that decides a segment no longer needs the number of remaining bytes.
const flow = remaining

// now is the register with the time, in code that no longer needs the hash of the flow.
const now = flow

// refuse adds the code of refuse_segment() of bpf/segment.h, without a call. It refuses a segment with ACK and without SYN, RST and FIN if three
// conditions hold. The flow of the segment is not recorded, only a cookie could let the segment pass, and no cookie was sent for it recently. Other
// segments continue with the hash of the flow in its register: at known if the flow may be recorded, and at unknown if it is not. If the kernel may
// have to be asked about a segment, the segment continues at other, without the hash.
func (s *section) refuse(protection int, found *ir.Handshake, decision uint32, known, unknown, other string) {
	s.flowHash()
	s.Add( // the bit of the flow's bucket: find_open_flow() of bpf/flow.h
		asm.Mov.Reg(asm.R1, flow), asm.RSh.Imm(asm.R1, 3), asm.And.Imm(asm.R1, int32(s.FlowMask>>3&^7)),
		asm.LoadMapValue(asm.R2, 0, 0).WithReference(image.FlowFilter), asm.Add.Reg(asm.R2, asm.R1), asm.LoadMem(asm.R2, asm.R2, 0, asm.DWord),
		asm.RSh.Reg(asm.R2, flow), asm.JSet.Imm(asm.R2, 1, known),
	)
	none := s.newLabel()
	s.coarseTime(unknown)
	s.Add( // cookie_may_come() of bpf/cookie.h
		asm.Mov.Reg(asm.R1, flow), asm.And.Imm(asm.R1, image.SentNotes-1),
		asm.LoadMapValue(asm.R2, 0, 0).WithReference(image.CookiesSent), asm.Add.Reg(asm.R2, asm.R1), asm.LoadMem(asm.R2, asm.R2, 0, asm.Byte),
		asm.JEq.Imm(asm.R2, 0, none),
		asm.Mov.Reg(asm.R1, asm.R3), asm.RSh.Imm(asm.R1, image.CookieSlot), asm.Sub.Reg(asm.R1, asm.R2),
		asm.And.Imm(asm.R1, image.SentEver-1), asm.JLT.Imm(asm.R1, image.SentSlots, unknown),
	)
	s.Mark(none)
	s.onlyCookies(protection, other)
	s.countOnly(found.Slots[ir.AckInvalid])
	s.decideAs(image.Decision(decision>>8, uint8(ir.Drop)), notAsked) // counted in the slot of the rule, as by protect()
}

// coarseTime adds code that loads coarse_time() of bpf/clock.h into r3. If the tick is over, so that the clock must be read again, the code jumps to
// over. It changes r0 to r5.
func (s *section) coarseTime(over string) {
	s.Add(
		asm.FnJiffies64.Call(),
		asm.LoadMapValue(asm.R1, 0, 0).WithReference(image.Tick), asm.LoadMem(asm.R3, asm.R1, 0, asm.DWord),
		asm.JEq.Imm(asm.R3, 0, over),
		asm.Xor.Reg(asm.R0, asm.R3), asm.JSet.Imm(asm.R0, 1<<image.TickBits-1, over),
	)
}

// flowHash adds the code of flow_hash() of bpf/flow.h.
func (s *section) flowHash() {
	s.ends(flow, asm.R2)
	s.Add(
		asm.LoadMapValue(asm.R3, 0, image.SynKeysHash).WithReference(image.SynKeys),
		asm.LoadMem(asm.R4, asm.R3, 8, asm.DWord), asm.Or.Imm(asm.R4, 1),
	)
	if s.v4() {
		s.Add(asm.LoadMem(asm.R1, asm.R3, 0, asm.DWord), asm.Xor.Reg(flow, asm.R1))
		s.hashFlow()
	}
	s.Add(asm.Xor.Reg(flow, asm.R2))
	s.hashFlow()
	s.hashFlow()
}

// hashFlow adds the part of hash_word() of bpf/flow.h after the XOR of the hash and the word. r4 has the factor.
func (s *section) hashFlow() {
	s.Add(asm.Mul.Reg(flow, asm.R4), asm.Mov.Reg(asm.R1, flow), asm.RSh.Imm(asm.R1, 32), asm.Xor.Reg(flow, asm.R1))
}

// onlyCookies adds the code of only_cookies() of bpf/segment.h for the time in r3. If the result is false, the code jumps to otherwise.
func (s *section) onlyCookies(protection int, otherwise string) {
	s.Add(asm.Mov.Reg(now, asm.R3))
	if len(s.Program.Protections) == 1 { // an array with one element needs no lookup
		s.Add(asm.LoadMapValue(asm.R0, 0, 0).WithReference(image.ProtectionStates))
	} else {
		s.element(image.ProtectionStates, protection, otherwise)
	}
	s.Add(
		asm.LoadMem(asm.R1, asm.R0, image.RefusedUntil, asm.DWord), asm.JGT.Reg(asm.R1, now, otherwise),
		asm.LoadMem(asm.R1, asm.R0, image.ActiveUntil, asm.DWord),
		asm.LoadImm(asm.R2, image.ActiveTime-image.ActiveRenew, asm.DWord), asm.Add.Reg(asm.R2, now),
		asm.JLE.Reg(asm.R1, asm.R2, otherwise),
	)
	s.element(image.Askers, image.AskStranger, otherwise)
	s.Add(
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Mov.Reg(asm.R2, now), asm.Add.Imm(asm.R2, image.AskBurst*image.AskInterval),
		asm.JLE.Reg(asm.R1, asm.R2, otherwise),
	)
}

// element adds code that sets r0 to the address of an element of an array. If there is no such element, the code jumps to otherwise.
func (s *section) element(array string, index int, otherwise string) {
	s.Add(
		asm.StoreImm(asm.RFP, slotAt, int64(index), asm.Word), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, slotAt),
		asm.LoadMapPtr(asm.R1, 0).WithReference(array), asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, otherwise),
	)
}

// countOnly adds code that counts the packet in a slot. The code continues afterwards.
func (s *section) countOnly(slot uint32) {
	out := s.newLabel()
	s.element(image.Counters, int(slot), out)
	s.increment()
	s.Mark(out)
}
