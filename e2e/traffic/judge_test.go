// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// judge decides whether a policy on a target forbids that an attempt arrives. doc.go has the definition.
type judge struct {
	program *ir.Program
	bare    *ir.Program     // the policy without checks
	asked   *ir.Program     // the policy with the checks that the target applies to every packet
	lost    packet.CheckSet // checks of the program that this target does not apply to frames
	whole   bool            // fragments may have been reassembled before the rules
	target  plan.Target
}

func newJudge(c *control.Compiled, t plan.Target) (*judge, error) {
	o, err := c.Output(t)
	if err != nil {
		return nil, err
	}
	j := &judge{program: o.Plan.Program, whole: t == plan.TargetIptables || o.Plan.Uses(plan.StageFilter), target: t}
	if t != plan.TargetXDP {
		for _, l := range o.Left {
			j.lost = j.lost.With(l.Check)
		}
		for _, s := range o.Plan.Program.Structural() {
			j.lost = j.lost.With(s.Check)
		}
	}
	bare, asked := *j.program, *j.program
	bare.Checks, asked.Checks = 0, asked.Checks&^j.lost
	j.bare, j.asked = &bare, &asked
	return j, nil
}

// world is the state for the policies of this test. Only the set of the host's addresses is dynamic.
var world = ir.World{Member: func(_ int, a netip.Addr) bool {
	return slices.Contains(targets[0], a) || slices.Contains(targets[1], a)
}}

func passes(p *ir.Program, pkt *packet.Packet) bool {
	verdict, _ := p.Eval(pkt, world)
	return verdict == ir.Pass
}

// forbids returns the reason why a socket should not have received an event, or "" if it may.
func (j *judge) forbids(a *attempt, e event) string {
	if !slices.ContainsFunc(a.frames, func(f frame) bool { return f.offset == 0 && j.received(a, e, f) }) {
		return "the policy forbids what the socket received"
	}
	if !j.whole && !j.covered(a) && !j.answeredByXDP(a, e) {
		return "a part of it was in no frame that the policy passes"
	}
	return ""
}

// answeredByXDP reports whether an event may be the SYN-ACK with which XDP answers one frame. This frame has the whole TCP header of the event, and a
// rule with SYN protection passes it. No socket has received data in this case, so other fragments of the datagram do not matter.
func (j *judge) answeredByXDP(a *attempt, e event) bool {
	return j.target == plan.TargetXDP && e.answer && slices.ContainsFunc(a.frames, func(f frame) bool {
		pkt := packet.Decode(f.bytes)
		v := &pkt.Value
		if pkt.Src != e.src || pkt.Dst != e.dst || v[packet.DPort] != uint32(e.dport) || v[packet.SPort] != uint32(e.sport) ||
			v[packet.Fragment] == packet.FragmentLater {
			return false
		}
		verdict, reason := j.program.Eval(&pkt, world)
		return verdict == ir.Pass && reason.Kind == ir.ReasonRule && j.program.Rules[reason.Index].Protect > 0
	})
}

// received reports whether the policy passes a datagram as the socket received it. The parameter f is the frame with the start of the datagram.
func (j *judge) received(a *attempt, e event, f frame) bool {
	pkt := a.datagram(e, f)
	if passes(j.bare, &pkt) {
		return true
	}
	if !j.whole || f.fragment == packet.FragmentNone {
		return false
	}
	pkt.Value[packet.Fragment] = packet.FragmentNone
	return passes(j.bare, &pkt) || j.passesWhole(a, e, f)
}

// passesWhole reports whether the policy passes a datagram that was reassembled before the rules. The parameter f is the frame with the start of the
// datagram.
func (j *judge) passesWhole(a *attempt, e event, f frame) bool {
	pkt := a.datagram(e, f)
	pkt.Value[packet.Fragment] = packet.FragmentNone
	pkt.Value[packet.Length] = f.length - uint32(f.size) + uint32(a.total)
	return passes(j.bare, &pkt)
}

// datagram returns the data that a socket received as a packet. The header values are those of f, the frame with the start of the datagram.
func (a *attempt) datagram(e event, f frame) packet.Packet {
	pkt := packet.Packet{Kind: packet.IP, Src: e.src, Dst: e.dst}
	v := &pkt.Value
	v[packet.Proto] = uint32(e.proto)
	v[packet.DPort], v[packet.SPort], v[packet.Flags] = packet.PortNone, packet.PortNone, packet.FlagsNone
	v[packet.ICMP], v[packet.DNS] = packet.ICMPNone, packet.DNSNone
	switch e.proto {
	case protoUDP:
		v[packet.DPort], v[packet.SPort] = packet.PortUDP+uint32(e.dport), packet.PortUDP+uint32(e.sport)
	case protoTCP:
		v[packet.DPort], v[packet.SPort], v[packet.Flags] = uint32(e.dport), uint32(e.sport), uint32(a.flags)
	}
	if e.src.Is6() {
		v[packet.Family] = packet.FamilyIPv6
	}
	v[packet.Length], v[packet.TTL], v[packet.DSCP], v[packet.VLAN], v[packet.Fragment] = f.length, f.ttl, f.dscp, f.vlan, f.fragment
	return pkt
}

// covered reports whether each part of the datagram was in a frame that passes.
func (j *judge) covered(a *attempt) bool {
	in := make([]bool, a.total)
	for _, f := range a.frames {
		if !j.passesFrame(f) {
			continue
		}
		for i := f.offset; i < f.offset+f.size; i++ {
			in[i] = true
		}
	}
	return !slices.Contains(in, false)
}

// passesFrame reports whether a frame passes. A frame that fails a check that the target does not apply counts as passing, because the rules then see
// another packet than Decode returns.
func (j *judge) passesFrame(f frame) bool {
	pkt := packet.Decode(f.bytes)
	return pkt.Failed&j.lost != 0 || passes(j.asked, &pkt)
}

// must reports whether an attempt must arrive. All its frames must pass. If fragments may have been reassembled before the rules, the whole datagram
// must pass as well. On iptables, any match on TCP drops a first fragment that ends within the TCP header, even in a rule that only counts (tcp_mt in
// the kernel's net/netfilter/xt_tcpudp.c).
func (j *judge) must(a *attempt) bool {
	if j.target == plan.TargetIptables && a.proto == protoTCP && slices.ContainsFunc(a.frames, func(f frame) bool {
		return f.fragment == packet.FragmentFirst && f.size < 20
	}) {
		return false
	}
	e := event{proto: a.proto, src: a.src, dst: a.dst, sport: a.sport, dport: a.dport}
	return a.formed && !slices.ContainsFunc(a.frames, func(f frame) bool {
		pkt := packet.Decode(f.bytes)
		return !passes(j.program, &pkt) || j.whole && f.fragment == packet.FragmentFirst && !j.passesWhole(a, e, f)
	})
}
