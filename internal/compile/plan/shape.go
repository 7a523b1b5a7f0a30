package plan

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// This file decides the cost of every packet at a stage of nftables: for the chains, which are written in this form, and for the cost
// model, which counts it.

// fewRules is the largest number of rules that test the device themselves. A packet from outside that matches none of them is then not
// tested for its device, which takes as long as some rules; a packet from inside passes all of them in vain.
const fewRules = 8

// The costs of a test of the device, and of a default that counts, in rules (measured with retpolines, where a rule takes 14 ns).
const (
	deviceRules  = 3
	defaultRules = 2
)

// AsksDeviceLast reports whether the rules of a stage in nftables test the device themselves, last: not if every packet is counted or
// dropped anyway, nor if rules are likely to match the traffic.
func (pl *Plan) AsksDeviceLast(s Stage, steps []Step) bool {
	likely := func(step Step) bool {
		r := pl.Of(step, s)
		return match.Metered(r) || r.Protect > 0
	}
	return len(steps) <= fewRules && !slices.ContainsFunc(steps, likely) && !pl.CheckedAt(s) && !pl.DefaultActs(s)
}

// DefaultActs reports whether the default is written at a stage: if it drops, or is counted. A default that passes only counts, and chains
// of IP would have to test the device of each packet for it; at ingress the chain belongs to the device. Beside XDP it is counted, as
// devices need not count the packets that XDP sees.
func (pl *Plan) DefaultActs(s Stage) bool {
	return pl.Default.At(s) && (pl.Program.Default != ir.Pass || s == StageIngress || pl.Target == TargetXDP)
}

// CheckedAt reports whether checks are made at a stage.
func (pl *Plan) CheckedAt(s Stage) bool {
	return slices.ContainsFunc(allChecks(pl.Program.Checks|pl.Program.Observed), func(c packet.Check) bool {
		return pl.CheckStage(c) == s && pl.Target.Makes(c)
	})
}

// Forwards reports whether anything is decided at filter of packets on their way through.
func (pl *Plan) Forwards(steps []Step) bool {
	return pl.DefaultActs(StageFilter) || pl.CheckedAt(StageFilter) || slices.ContainsFunc(steps, func(s Step) bool {
		r := &pl.Program.Rules[s.Rule]
		return (!s.Again || r.Protect > 0) && pl.flow(r) != cost.Local
	})
}

// PartsFragments reports whether later fragments leave the chain of a stage before its rules, which costs every packet two tests. Lines for
// IPv4 test it themselves, last; with IPv6 each would become two lines.
func (pl *Plan) PartsFragments(s Stage, steps []Step) bool {
	return (s != StageFilter || pl.FragmentsAtFilter(steps)) && slices.ContainsFunc(steps, func(step Step) bool {
		r := pl.Of(step, s)
		return match.ReadsHeader(r) && (len(r.Payload) > 0 || !pl.onlyIPv4(r))
	})
}

// onlyIPv4 reports whether a rule, by its family or by its addresses, matches IPv4 packets only.
func (pl *Plan) onlyIPv4(r *ir.Rule) bool {
	if !(ir.Match{Values: match.Values(r, packet.Family)}).Has(packet.FamilyIPv6) {
		return true
	}
	return slices.ContainsFunc(slices.Concat(r.Src, r.Dst), func(m ir.AddrMatch) bool {
		return !m.Not && !slices.ContainsFunc(m.Sets, func(i int) bool {
			s := pl.Program.Sets[i].Fixed()
			return s == nil || s.Size() > len(s.V4())
		})
	})
}

// FragmentsAtFilter reports whether later fragments may come to filter while steps there ask for them, or for fields that they lack. Only conntrack
// reassembles fragments, and only if a rule needs it: for a state, for SYNPROXY, or for packet.SenderChecks.
func (pl *Plan) FragmentsAtFilter(steps []Step) bool {
	tracked, header := pl.Proxies() || pl.CheckedAt(StageFilter), false
	for _, s := range steps {
		r := &pl.Program.Rules[s.Rule]
		tracked = tracked || slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.State })
		header = header || match.ReadsHeader(r) || match.Tests(r, packet.Fragment)
	}
	return header && !tracked
}

// Inline is how many ranges written in a rule stay there.
const Inline = 8
