// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// family is an IP version, with the offsets of its header fields relative to the register base.
type family struct {
	name      string // the name of the family, which is also the label of its code
	value     uint32 // the value of packet.Family
	etherType uint16
	begins    int32 // when the EtherType and the next bytes are loaded at once: the mask for bits of the IP header's first byte
	version   int32 // the first byte of the IP header under that mask; for IPv4 it includes the header length without options
	ttl       int16
	source    int16
	dest      int16
	l4        int16
	protos    []proto
}

// proto is a protocol of a family. The packets of each protocol have a section of code.
type proto struct {
	name   string
	number uint32
	header int32        // the smallest size of its header in bytes
	ports  *ir.Range    // the values of packet.DPort for its ports; nil: it has no ports
	types  *ir.Range    // the values of packet.ICMP for its types; nil: it has no types
	field  packet.Field // the field that is in r3: packet.DPort or packet.ICMP
}

var (
	tcpPorts    = ir.Range{First: 0, Last: packet.PortUDP - 1}
	udpPorts    = ir.Range{First: packet.PortUDP, Last: packet.PortNone - 1}
	icmpTypes   = ir.Range{First: 0, Last: packet.ICMPv6 - 1}
	icmpv6Types = ir.Range{First: packet.ICMPv6, Last: packet.ICMPNone - 1}

	tcp = proto{"tcp", packet.ProtoTCP, 20, &tcpPorts, nil, packet.DPort}
	udp = proto{"udp", packet.ProtoUDP, 8, &udpPorts, nil, packet.DPort}
)

// families are the IP versions, in the order in which the entry tests for them.
var families = []*family{
	{"entry_ipv4", packet.FamilyIPv4, 0x0800, 0xff0000, 0x45, 22, 26, 30, 34, []proto{udp, tcp, {"icmp", packet.ProtoICMP, 8, nil, &icmpTypes, packet.ICMP}}},
	{"entry_ipv6", packet.FamilyIPv6, 0x86dd, 0xf00000, 0x60, 21, 22, 38, 54, []proto{udp, tcp, {"icmpv6", packet.ProtoICMPv6, 8, nil, &icmpv6Types, packet.ICMP}}},
}

// length is the register with the length of the IP packet at the start of a section.
const length = asm.R5

// network adds code that reads the IP header of a family, followed by the sections of the family.
func (g *generator) network(f *family, sections []*section) {
	g.Mark(f.name)
	g.Say("header of " + f.name[len("entry_"):])
	if f.value == packet.FamilyIPv4 {
		g.ipv4()
	} else {
		g.ipv6()
	}
	for _, p := range f.protos {
		g.Add(asm.JEq.Imm(asm.R1, int32(p.number), f.name+"_"+p.name))
	}
	g.Add(asm.Ja.Label(toGeneral))
	for _, s := range sections {
		s.code()
	}
}

// ipv4 adds code that sets r1 to the protocol and r5 to the length. Packets with TTL 0 go to general(). Routers do not forward them, so a distant
// flood cannot consist of such packets.
func (g *generator) ipv4() {
	const (
		fragment = 0x00ff3f // a mask for a load from the flags on, in network order: all bits of their 16-bit word except the reserved bit and DF
		ttl      = 0xff0000
		protocol = 24 // the protocol begins at this bit
		alive    = "entry_ipv4_alive"
	)
	g.Add(
		asm.LoadMem(length, base, 16, asm.Half),
		asm.HostTo(asm.BE, length, asm.Half),
		asm.JGT.Reg(length, remaining, toGeneral),
		asm.LoadMem(asm.R1, base, 20, asm.Word),
		asm.JSet.Imm(asm.R1, fragment, toGeneral),
	)
	if g.asked(packet.TTLZero) {
		g.Add(asm.JSet.Imm(asm.R1, ttl, alive), asm.Ja.Label(toGeneral))
		g.Mark(alive)
	}
	g.Add(asm.RSh.Imm(asm.R1, protocol))
}

const ipv6Header = 40 // bytes

// ipv6 adds code that sets r1 to the next header, and r5 to the length including the IPv6 header.
func (g *generator) ipv6() {
	g.Add(asm.LoadMem(asm.R1, context, g.at.end, asm.Word))
	g.inFrame(base, 14+ipv6Header+8, asm.R1)
	g.Add(
		asm.LoadMem(length, base, 18, asm.Half),
		asm.HostTo(asm.BE, length, asm.Half),
		asm.Add.Imm(length, ipv6Header),
		asm.JGT.Imm(length, 65535, toGeneral), // the largest value of packet.Length
		asm.JGT.Reg(length, remaining, toGeneral),
		asm.LoadMem(asm.R1, base, 20, asm.Byte),
	)
}

// addressBytes returns the length of an address in bytes.
func (f *family) addressBytes() int16 { return f.dest - f.source }

// header returns the length of the IP header in bytes.
func (f *family) header() int32 { return int32(f.l4) - 14 }

// loadLength adds code that loads the length of the IP packet into a register.
func (g *generator) loadLength(to asm.Register, f *family) {
	if f.value == packet.FamilyIPv4 {
		g.Add(asm.LoadMem(to, base, 16, asm.Half), asm.HostTo(asm.BE, to, asm.Half))
		return
	}
	g.Add(asm.LoadMem(to, base, 18, asm.Half), asm.HostTo(asm.BE, to, asm.Half), asm.Add.Imm(to, ipv6Header))
}
