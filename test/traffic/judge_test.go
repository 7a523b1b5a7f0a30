package traffic_test

import (
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// judge says what a policy on a target forbids. The comment of reach.go defines it.
type judge struct {
	program *ir.Program
	bare    *ir.Program     // without checks
	asked   *ir.Program     // with the checks that the target makes of every packet
	lost    packet.CheckSet // of the program, that frames on this target are not asked
	whole   bool            // fragments may have been put together before rules
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

// world knows the host's addresses. No other set of the policies is dynamic.
var world = ir.World{Member: func(_ int, a netip.Addr) bool {
	return slices.Contains(targets[0], a) || slices.Contains(targets[1], a)
}}

func passes(p *ir.Program, pkt *packet.Packet) bool {
	verdict, _ := p.Eval(pkt, world)
	return verdict == ir.Pass
}

// forbids is the reason why a socket should not have got what it got, or "".
func (j *judge) forbids(a *attempt, e event) string {
	if !slices.ContainsFunc(a.frames, func(f frame) bool { return f.offset == 0 && j.received(a, e, f) }) {
		return "the policy forbids what the socket received"
	}
	if !j.whole && !j.covered(a) && !j.answeredByXDP(a, e) {
		return "a part of it was in no frame that the policy passes"
	}
	return ""
}

// answeredByXDP reports whether an event may be the SYN-ACK by which XDP answers one frame: a frame that holds the whole
// TCP header of what the event names, and that a rule with SYN protection passes. No socket received anything then, so
// other fragments of the datagram are not asked for.
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

// received judges a datagram as the socket got it, started by a frame.
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

// passesWhole judges a datagram that was put together before the rules, started by a frame.
func (j *judge) passesWhole(a *attempt, e event, f frame) bool {
	pkt := a.datagram(e, f)
	pkt.Value[packet.Fragment] = packet.FragmentNone
	pkt.Value[packet.Length] = f.length - uint32(f.size) + uint32(a.total)
	return passes(j.bare, &pkt)
}

// datagram is what a socket got, as the packet of the frame that begins it.
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

// covered reports whether each part of the datagram was in some frame that passes.
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

// passesFrame judges a frame. Of one that fails a check which the target does not make, the rules see another packet than
// Decode does.
func (j *judge) passesFrame(f frame) bool {
	pkt := packet.Decode(f.bytes)
	return pkt.Failed&j.lost != 0 || passes(j.asked, &pkt)
}

// must reports whether an attempt has to arrive: all frames pass, and where fragments may have been put together before rules, so
// does the datagram. On iptables a test of TCP drops a first fragment that ends within the TCP header, also a test that
// only counts (tcp_mt in the kernel's net/netfilter/xt_tcpudp.c).
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
