// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// freedom decides which rules may move to stages later than their earliest one.
type freedom struct {
	base  *Plan // the plan in which each rule runs at its earliest stage
	mix   cost.Mix
	parts []bool // for each rule: its decision is the same for fragments and for the reassembled datagram
}

func freedomOf(base *Plan, mix cost.Mix) *freedom {
	return &freedom{base, mix, fragmentsAlike(base.Program.Rules)}
}

// may reports whether a rule may run at a stage that is later than its earliest stage.
func (f *freedom) may(rule int, stage Stage) bool {
	p := f.base.Program
	r := &p.Rules[rule]
	if wish, _ := p.PlacementOf(r); wish != ir.PlaceAuto || !steady(r) || f.mix.Bypassed {
		return false
	}
	return stage != StageFilter || !f.mix.NAT && f.parts[rule]
}

// permits reports whether all rules of a plan are at permitted stages. This includes the rules that had to follow other rules.
func (f *freedom) permits(pl *Plan) bool {
	for i, place := range pl.Rules {
		if pl.after(place.Stage, f.base.Rules[i].Stage) && !f.may(i, place.Stage) {
			return false
		}
	}
	return true
}

// Permits reports whether Place could have chosen the plan other of the same program in place of pl. A plan that was permitted for an earlier mix of
// packets may no longer be permitted, if addresses are now translated or packets now bypass the later stages.
func (pl *Plan) Permits(other *Plan) bool { return pl.free.permits(other) }

// steady reports whether a rule decides a packet in the same way at all stages that can run it, whatever the kernel does between them. Such a rule
// has no conditions. It does not test the length, which conntrack changes when it reassembles fragments. It does not test the TTL, which the kernel
// decrements before it forwards a packet.
func steady(r *ir.Rule) bool {
	changes := func(m ir.Match) bool {
		return m.Field == packet.Length || m.Field == packet.TTL || m.Field == packet.Fragment
	}
	return (r.Verdict == ir.Drop || r.Verdict == ir.Pass) && r.Protect == 0 && r.Sample == 0 && !r.Conditional() &&
		!slices.ContainsFunc(r.Match, changes)
}

// none has the value of L4 header fields in later fragments.
var none = map[packet.Field]uint32{
	packet.DPort: packet.PortNone, packet.SPort: packet.PortNone, packet.Flags: packet.FlagsNone, packet.ICMP: packet.ICMPNone,
}

// fragmentsAlike returns, for each rule, whether its effect is the same before and after conntrack, which reassembles fragments. If a rule that tests
// ports drops a first fragment, the datagram is never complete. So it is lost in both cases. If a rule also matches later fragments, and an earlier
// rule with another verdict tests ports, only the reassembled datagram shows which rule matches.
func fragmentsAlike(rules []ir.Rule) []bool {
	alike := make([]bool, len(rules))
	asked := map[ir.Verdict]bool{} // verdicts of the earlier rules that test ports or other fields of the L4 header
	for i := range rules {
		r := &rules[i]
		asks, matchesLater := false, true
		for _, m := range r.Match {
			if value, ok := none[m.Field]; ok {
				asks = true
				matchesLater = matchesLater && slices.ContainsFunc(m.Values, func(v ir.Range) bool { return v.First <= value && value <= v.Last })
			}
		}
		others := 0
		for v := range asked {
			if v != r.Verdict {
				others++
			}
		}
		alike[i] = !matchesLater || !asks && others == 0
		if asks {
			asked[r.Verdict] = true
		}
	}
	return alike
}
