// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// exempt returns the documented reason why a target may decide a frame in another way than XDP. It returns "" if there is none.
func (d *differential) exempt(s *subject.Subject, pl *plan.Plan, r *rules, f subject.Probe, fate testutil.Fate) string {
	pkt := f.Packet()
	switch {
	case pkt.Kind == packet.NotIP:
		return "not IP"
	case pkt.Kind == packet.Malformed:
		return "the kernel drops what has no readable IP header"
	case pkt.Failed&s.Program.Checks&^r.checks != 0:
		return "fails a check that the compiler says the target does not do"
	case pkt.Failed.Has(packet.Truncated) || pkt.Failed.Has(packet.IPHeader) || pkt.Failed.Has(packet.IPChecksum):
		return "the kernel's IP drops it before"
	case pkt.Failed.Has(packet.ExtHeaders) || pkt.Failed.Has(packet.ExtOrder):
		return "IPv6 extension headers that the kernel reads otherwise"
	case (pl.Uses(plan.StageFilter) || d.target == plan.TargetIptables) && (pkt.Value[packet.Fragment] != packet.FragmentNone || pkt.Failed.Has(packet.AtomicFragment)):
		return "a fragment, which conntrack puts together with others"
	case headless(&pkt):
		return "an L4 header that is cut short, where netfilter reads what follows the packet"
	case d.target == plan.TargetIptables && pkt.Value[packet.Family] == packet.FamilyIPv6 && pkt.Value[packet.Length] < 48:
		return "IPv6 with less than 8 bytes, where ip6tables finds no header to look for"
	case d.target == plan.TargetIptables && pkt.Value[packet.Family] == packet.FamilyIPv6 && pkt.Value[packet.Proto] == 50 && len(pkt.L4) < 2:
		return "IPv6 with ESP of less than 2 bytes, which ip6tables takes for an extension header that is cut short"
	case s.HasLocal() && (pkt.Src.IsLoopback() || pkt.Dst.IsLoopback()):
		return "a loopback address from outside, which the kernel drops"
	case pkt.Failed.Has(packet.TCPHeader), pkt.Failed.Has(packet.TinyFragment):
		return "a TCP header that is not whole, in which netfilter finds no options"
	case subject.AsksFor(s.Program, packet.MSS) && subject.OddOptions(&pkt):
		return "TCP options behind their end, or of a wrong length, which netfilter reads otherwise"
	case pkt.Value[packet.Proto] == 51 && pkt.Value[packet.Family] == packet.FamilyIPv6:
		return "IPv6 with an authentication header, behind which nft looks for extension headers"
	case d.target == plan.TargetIptables && d.unseen(s, &pkt):
		return "a payload that iptables does not look into"
	case d.target == plan.TargetNftables && len(fate.Seen) > 0 && fate.Seen[0] != "ingress":
		return "behind two VLAN tags, where the ingress hook sees no IP"
	case fate.Dropped == "" && !d.arrived(pl, fate):
		return "the kernel's IP drops it before the last stage"
	}
	return ""
}

// unseen reports whether a policy tests the payload although iptables cannot see the payload of this packet. The notes of iptables say so.
func (d *differential) unseen(s *subject.Subject, pkt *packet.Packet) bool {
	text, place := false, false
	for _, r := range s.Program.Rules {
		for _, m := range r.Payload {
			text, place = text || len(m.Any) > 0, place || len(m.At) > 0
		}
	}
	v4 := pkt.Value[packet.Family] == packet.FamilyIPv4
	options := int(pkt.Value[packet.Length])-len(pkt.L4) != map[bool]int{true: 20, false: 40}[v4]
	if hasShortHeader(pkt) {
		return options && (text || place && !v4)
	}
	return place && (options && !v4 || len(pkt.Payload) < 4)
}

// headless reports whether a packet should have an L4 header but has no readable one.
func headless(pkt *packet.Packet) bool {
	none := pkt.Value[packet.DPort] == packet.PortNone && pkt.Value[packet.ICMP] == packet.ICMPNone
	should := pkt.Value[packet.Proto] == 6 || hasShortHeader(pkt)
	return should && none && pkt.Value[packet.Fragment] != packet.FragmentLater
}

// hasShortHeader reports whether a packet's protocol is one with an L4 header of 8 bytes: UDP, or ICMP of its family.
func hasShortHeader(pkt *packet.Packet) bool {
	v4 := pkt.Value[packet.Family] == packet.FamilyIPv4
	switch pkt.Value[packet.Proto] {
	case 17:
		return true
	case 1:
		return v4
	case 58:
		return !v4
	}
	return false
}

// arrived reports whether a frame reached the last hook at which a rule can be.
func (d *differential) arrived(pl *plan.Plan, fate testutil.Fate) bool {
	last := "raw" // the last hook that every packet reaches
	if slices.Contains(fate.Seen, last) && !pl.Uses(plan.StageFilter) && !asksReject(pl.Program) {
		return true
	}
	return slices.Contains(fate.Seen, "input") || slices.Contains(fate.Seen, "forward")
}

func asksState(p *ir.Program) bool { return subject.AsksFor(p, packet.State) }

func asksReject(p *ir.Program) bool {
	return slices.ContainsFunc(p.Rules, func(r ir.Rule) bool { return r.Verdict == ir.Reject })
}
