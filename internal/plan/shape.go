package plan

import (
	"slices"

	"github.com/floodwall/floodwall/internal/cost"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/match"
	"github.com/floodwall/floodwall/internal/packet"
)

// What every packet pays at a stage of nftables is decided here: for the chains, which are written in this way, and for the
// cost model, which counts it.

// fewRules is how many rules at most ask for the device themselves. A packet from outside that none of them matches is then
// not asked for its device, which takes as long as some rules; one from inside passes all of them in vain.
const fewRules = 8

// How many rules take as long as a test of the device, and as a default that counts (measured with retpolines, where a rule
// takes 14 ns).
const (
	deviceRules  = 3
	defaultRules = 2
)

// AsksDeviceLast reports whether the rules of a stage in nftables ask for the device themselves, last: not where every
// packet is counted or dropped in any case, nor where rules are likely to match what comes.
func (pl *Plan) AsksDeviceLast(s Stage, steps []Step) bool {
	likely := func(s Step) bool {
		r := &pl.Program.Rules[s.Rule]
		return match.Metered(r) || r.Protect > 0
	}
	return len(steps) <= fewRules && !slices.ContainsFunc(steps, likely) && !pl.CheckedAt(s) && !pl.DefaultActs(s)
}

// DefaultActs reports whether the default is written at a stage: where it drops, or is counted. One that passes only counts,
// for which IP's chains would have to ask each packet for its device; at ingress the chain is the device's own. Beside XDP it
// is counted, as devices need not count the packets that XDP sees.
func (pl *Plan) DefaultActs(s Stage) bool {
	return pl.Default.Stage == s && (pl.Program.Default != ir.Pass || s == StageIngress || pl.Target == TargetXDP)
}

// CheckedAt reports whether checks are made at a stage.
func (pl *Plan) CheckedAt(s Stage) bool {
	return slices.ContainsFunc(allChecks(pl.Program.Checks|pl.Program.Observed), func(c packet.Check) bool {
		return pl.Target.CheckStage(c) == s && pl.Target.Makes(c)
	})
}

// Forwards reports whether anything is decided at filter of packets on their way through.
func (pl *Plan) Forwards(steps []Step) bool {
	return pl.DefaultActs(StageFilter) || slices.ContainsFunc(steps, func(s Step) bool {
		r := &pl.Program.Rules[s.Rule]
		return (!s.Again || r.Protect > 0) && pl.flow(r) != cost.Local
	})
}

// PartsFragments reports whether later fragments leave the chain of a stage in front of its rules, which takes every packet
// two tests. Lines for IPv4 ask for it themselves, last; with IPv6 each would become two.
func (pl *Plan) PartsFragments(s Stage, steps []Step) bool {
	return (s != StageFilter || pl.FragmentsAtFilter(steps)) && slices.ContainsFunc(steps, func(s Step) bool {
		r := &pl.Program.Rules[s.Rule]
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

// FragmentsAtFilter reports whether later fragments may come to filter, where steps ask for what these have not. Only
// conntrack puts fragments together, and only where a rule asks for it: a state, or SYNPROXY.
func (pl *Plan) FragmentsAtFilter(steps []Step) bool {
	tracked, header := pl.Proxies(), false
	for _, s := range steps {
		r := &pl.Program.Rules[s.Rule]
		tracked = tracked || slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.State })
		header = header || match.ReadsHeader(r)
	}
	return header && !tracked
}

// Inline is how many ranges written in a rule stay there.
const Inline = 8
