package plan

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// freedom is how far rules may be moved behind the earliest stages that can serve them.
type freedom struct {
	base  *Plan // with all as early as can be
	mix   cost.Mix
	parts []bool // of each rule: it says the same of fragments and of what they are put together to
}

func freedomOf(base *Plan, mix cost.Mix) *freedom {
	return &freedom{base, mix, fragmentsAlike(base.Program.Rules)}
}

// may reports whether a rule may run at a stage behind its earliest one.
func (f *freedom) may(rule int, stage Stage) bool {
	p := f.base.Program
	r := &p.Rules[rule]
	if wish, _ := p.PlacementOf(r); wish != ir.PlaceAuto || !steady(r) || f.mix.Bypassed {
		return false
	}
	return stage != StageFilter || !f.mix.NAT && f.parts[rule]
}

// permits reports whether all rules of a plan are where they may be, also those that had to follow others.
func (f *freedom) permits(pl *Plan) bool {
	for i, place := range pl.Rules {
		if pl.after(place.Stage, f.base.Rules[i].Stage) && !f.may(i, place.Stage) {
			return false
		}
	}
	return true
}

// Permits reports whether Place, which made pl, could have chosen another plan of the same program instead. What was
// permitted with another mix is not any more when addresses are translated, or when packets begin to take ways round the
// later stages.
func (pl *Plan) Permits(other *Plan) bool { return pl.free.permits(other) }

// steady reports whether a rule says the same of a packet at all stages that can serve it, whatever happens in between: it
// has no conditions, and does not ask for the length, which conntrack changes when it puts fragments together, nor for the
// TTL, which is tested by the kernel before a packet is forwarded.
func steady(r *ir.Rule) bool {
	changes := func(m ir.Match) bool {
		return m.Field == packet.Length || m.Field == packet.TTL || m.Field == packet.Fragment
	}
	return (r.Verdict == ir.Drop || r.Verdict == ir.Pass) && r.Protect == 0 && r.Sample == 0 && !r.Conditional() &&
		!slices.ContainsFunc(r.Match, changes)
}

// none is the value that later fragments have in the fields of transport headers.
var none = map[packet.Field]uint32{
	packet.DPort: packet.PortNone, packet.SPort: packet.PortNone, packet.Flags: packet.FlagsNone, packet.ICMP: packet.ICMPNone,
}

// fragmentsAlike finds the rules that may run behind conntrack, which puts fragments together, as well as before it. Where a
// rule asks for ports, a datagram whose first fragment it drops never gets whole, so it is gone in either place. Where one
// matches later fragments as well, and a rule before it decides otherwise by ports, only the whole datagram tells.
func fragmentsAlike(rules []ir.Rule) []bool {
	alike := make([]bool, len(rules))
	asked := map[ir.Verdict]bool{} // by a rule so far that asks for ports or the like, and has this verdict
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
