// SPDX-License-Identifier: Apache-2.0

package lab

import "github.com/floodwall/floodwall/internal/model/packet"

// Recording is a capture of a real attack. A capture also has packets to the victim that are not of the attack.
type Recording struct {
	Name, Label string
	Kind        string                      // of the attack, as in reports
	File        string                      // its name in the directory of captures
	Attacks     func(p *packet.Packet) bool // reports whether a packet belongs to the attack
}

// Recordings are captures of the DDoS Packet Capture Collection by L.F. Haaijer (2022). Tests and experiments replay them if they are there. Half of
// the other packets in the last one are of the victim's own TCP connections.
var Recordings = []Recording{
	{"recorded-syn", "a recorded SYN flood", "SYN flood", "pkt.TCP.synflood.spoofed.pcap", func(p *packet.Packet) bool { return p.Value[packet.Flags] == 0x02 }},
	{"recorded-synack", "a recorded reflection of SYN-ACKs", "SYN-ACK reflection", "amp.TCP.reflection.SYNACK.pcap", func(p *packet.Packet) bool { return p.Value[packet.Flags] == 0x12 }},
	{"recorded-ike", "a recorded amplification by ISAKMP", "IKE amplification", "amp.UDP.isakmp.pcap", func(p *packet.Packet) bool { return p.Value[packet.SPort] == packet.PortUDP+4500 }},
	{"recorded-dns", "a recorded amplification by DNS, most of it later fragments", "DNS amplification", "amp.dns.RRSIG.fragmented.pcap", func(p *packet.Packet) bool {
		large := p.Value[packet.SPort] == packet.PortUDP+53 && p.Value[packet.Fragment] == packet.FragmentFirst
		return large || p.Value[packet.Proto] == packet.ProtoUDP && p.Value[packet.Fragment] == packet.FragmentLater
	}},
}
