// SPDX-License-Identifier: Apache-2.0

// This file adds the code that depends on the hook: how a packet is read, and what the program returns.

package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// hook has the properties of a hook.
type hook struct {
	data, end int16            // the offsets in the context of the start and the end of the frame's linear part
	actions   []int32          // the returned value, by ir.Verdict: pass and drop
	begin     func(*generator) // adds the code that finds the IP header and jumps to the section of its version
	question  func(*generator, string)
}

// Offsets of members of struct xdp_md in the kernel's include/uapi/linux/bpf.h.
const xdpMeta = 8

// Offsets of members of struct __sk_buff there.
const (
	skbLength      = 0
	skbProtocol    = 16
	skbVLANPresent = 20
	skbIndex       = 44 // tc_index
	skbQuestion    = 48 // cb
	skbData        = 76
	skbEnd         = 80
	skbSegment     = 176 // gso_size
)

var hooks = map[image.Hook]*hook{
	image.XDP:    {0, 4, []int32{2, 1}, (*generator).ethernet, (*generator).xdpQuestion},
	image.TC:     {skbData, skbEnd, []int32{-1, 2}, (*generator).socketBuffer, (*generator).tcQuestion},
	image.TCBare: {skbData, skbEnd, []int32{-1, 2}, (*generator).barePacket, (*generator).tcQuestion},
}

// notQuestion adds code that jumps to otherwise if the frame may carry a question.
func (g *generator) notQuestion(otherwise string) {
	if g.Questions {
		g.at.question(g, otherwise)
	}
}

// xdpQuestion looks for the metadata area, which only the host can give a frame.
func (g *generator) xdpQuestion(otherwise string) {
	g.Add(
		asm.LoadMem(asm.R1, context, xdpMeta, asm.Word),
		asm.LoadMem(asm.R2, context, g.at.data, asm.Word),
		asm.JLT.Reg(asm.R1, asm.R2, otherwise),
	)
}

// tcQuestion compares the lower half of the key (bpf/explain.h).
func (g *generator) tcQuestion(otherwise string) {
	g.Add(asm.LoadMem(asm.R1, context, skbQuestion, asm.Word), asm.JEq.Imm32(asm.R1, int32(uint32(g.Key)), otherwise))
}

// linkBytes is the length of the Ethernet header.
const linkBytes = 14

// frameBytes is the size in bytes of the smallest frame that the entry decides: Ethernet, IPv4, and 8 bytes of UDP or ICMP.
const frameBytes = linkBytes + 20 + 8

// ethernet adds code for XDP: it reads the Ethernet header of a frame.
func (g *generator) ethernet() {
	g.Say("Ethernet, with at most one VLAN tag")
	g.Add(
		asm.Mov.Reg(context, asm.R1),
		asm.LoadMem(base, context, g.at.data, asm.Word),
		asm.LoadMem(size, context, g.at.end, asm.Word),
	)
	g.inFrame(base, frameBytes, size)
	g.sourceMAC()
	g.Add(asm.Sub.Reg(size, base), asm.Mov.Reg(remaining, size), asm.Sub.Imm(remaining, linkBytes))
	g.etherTypes()
	if !g.tagged {
		g.Add(asm.Ja.Label(toGeneral))
		return
	}
	g.Add(
		asm.And.Imm(asm.R1, 0xffff),
		asm.JNE.Imm(asm.R1, networkOrder(etherTypeVLAN), toGeneral), asm.LoadMem(asm.R1, context, g.at.end, asm.Word),
	)
	g.inFrame(base, frameBytes+tagBytes, asm.R1)
	g.Add(asm.Add.Imm(base, tagBytes), asm.Sub.Imm(remaining, tagBytes))
	g.etherTypes()
	g.Add(asm.Ja.Label(toGeneral))
}

// sourceMAC adds code that sends a frame whose source is a group to general(), if a check asks for that.
func (g *generator) sourceMAC() {
	if g.asked(packet.SourceMAC) {
		g.Add(asm.LoadMem(asm.R1, base, 6, asm.Byte), asm.JSet.Imm(asm.R1, 1, toGeneral)) // the group bit
	}
}

const (
	etherTypeVLAN = 0x8100 // IEEE 802.1Q
	tagBytes      = 4      // the length of a VLAN tag
)

// etherTypes adds code that jumps to the section of the IP version, if the EtherType and the version match. r1 keeps the EtherType in its lower bits.
func (g *generator) etherTypes() {
	g.Add(asm.LoadMem(asm.R1, base, 12, asm.Word))
	g.versions()
}

// versions adds code that jumps to the section of the IP version. r1 has the EtherType, in network byte order, and above it the first byte of the IP
// header.
func (g *generator) versions() {
	for _, f := range families {
		g.Add(asm.And.Imm(asm.R1, f.begins|0xffff), asm.JEq.Imm(asm.R1, f.version<<16|networkOrder(f.etherType), f.name))
	}
}

// reinjected is the value of tc_index of a packet that a program of Floodwall has queued again: REINJECTED of bpf/context.h.
const reinjected = 0xf1

// again is the label of the code that passes a packet which was decided already.
const again = "entry_again"

// openBuffer adds code for tc. It passes a packet that was decided already, and leaves to general() a packet that the kernel has joined from several.
// It loads the length into size.
func (g *generator) openBuffer() {
	g.Add(
		asm.Mov.Reg(context, asm.R1),
		asm.LoadMem(asm.R1, context, skbIndex, asm.Word), asm.JEq.Imm(asm.R1, reinjected, again),
		asm.LoadMem(asm.R1, context, skbSegment, asm.Word), asm.JNE.Imm(asm.R1, 0, toGeneral),
		asm.LoadMem(base, context, g.at.data, asm.Word),
		asm.LoadMem(size, context, skbLength, asm.Word), asm.Mov.Reg(remaining, size),
	)
}

// passAgain adds the code at the label again.
func (g *generator) passAgain() {
	g.Mark(again)
	g.Add(asm.Mov.Imm(asm.R0, g.at.actions[0]), asm.Return())
}

// socketBuffer adds code for tc: it reads the Ethernet header. The outer VLAN tag is not in the frame, but it counts as a part of its size.
func (g *generator) socketBuffer() {
	const untagged = "entry_untagged"
	g.Say("Ethernet, with at most one VLAN tag")
	g.openBuffer()
	g.Add(asm.LoadMem(asm.R1, context, g.at.end, asm.Word))
	g.inFrame(base, frameBytes, asm.R1)
	g.sourceMAC()
	g.Add(asm.Sub.Imm(remaining, linkBytes), asm.LoadMem(asm.R1, context, skbVLANPresent, asm.Word))
	if g.tagged {
		g.Add(asm.JEq.Imm(asm.R1, 0, untagged), asm.Add.Imm(size, tagBytes))
		g.Mark(untagged)
	} else {
		g.Add(asm.JNE.Imm(asm.R1, 0, toGeneral))
	}
	g.etherTypes()
	g.Add(asm.Ja.Label(toGeneral))
	g.passAgain()
}

// barePacket adds code for tc on a device without a link layer. The register base points to where an Ethernet header would begin.
func (g *generator) barePacket() {
	g.Say("IP, without a link layer")
	g.openBuffer()
	g.Add(asm.Sub.Imm(base, linkBytes), asm.LoadMem(asm.R1, context, g.at.end, asm.Word))
	g.inFrame(base, frameBytes, asm.R1)
	g.Add(
		asm.LoadMem(asm.R1, base, linkBytes, asm.Byte), asm.LSh.Imm(asm.R1, 16),
		asm.LoadMem(asm.R2, context, skbProtocol, asm.Word), asm.Or.Reg(asm.R1, asm.R2),
	)
	g.versions()
	g.Add(asm.Ja.Label(toGeneral))
	g.passAgain()
}
