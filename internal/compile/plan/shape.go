// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// This file decides which tests every packet needs at a stage of nftables. The generator of the chains writes these tests, and the cost model counts
// them.

// fewRules is the largest number of rules that each test the device, as their last test. The device of a packet that matches no rule is then not
// tested, which saves the time of some rules. But a packet from inside is then tested against all rules, although none of them applies to it.
const fewRules = 8

// The costs of a test of the device and of a default that counts, in units of a rule (measured with retpolines, where a rule takes 14 ns).
const (
	deviceRules  = 3
	defaultRules = 2
)

// AsksDeviceLast reports whether each rule of a stage in nftables tests the device itself, as its last test. It does not if every packet is counted
// or dropped in any case, or if the rules are likely to match much of the traffic.
func (pl *Plan) AsksDeviceLast(s Stage, steps []Step) bool {
	likely := func(step Step) bool {
		r := pl.Of(step, s)
		return match.Metered(r) || r.Protect > 0
	}
	return len(steps) <= fewRules && !slices.ContainsFunc(steps, likely) && !pl.CheckedAt(s) && !pl.DefaultActs(s)
}

// DefaultActs reports whether the generator writes the default at a stage: if the default drops packets, or if its packets must be counted. A default
// that passes packets only counts them. For that, chains after IP would have to test the device of each packet. At ingress the chain belongs to the
// device, so counting is cheap. After XDP the default is counted, because a device's own counters may not include the packets that XDP sees.
func (pl *Plan) DefaultActs(s Stage) bool {
	return pl.Default.At(s) && (pl.Program.Default != ir.Pass || s == StageIngress || pl.Target == TargetXDP)
}

// CheckedAt reports whether checks are made at a stage.
func (pl *Plan) CheckedAt(s Stage) bool {
	return slices.ContainsFunc(allChecks(pl.Program.Checks|pl.Program.Observed), func(c packet.Check) bool {
		return pl.CheckStage(c) == s && pl.Target.Makes(c)
	})
}

// ForgedZone is the conntrack zone for packets from outside whose source is certainly forged: an address of this host, the unspecified address, or a
// multicast or broadcast address. In this zone they cannot match connections of other packets, and other packets cannot match their connections.
const ForgedZone = 61709

// AsksState reports whether a rule at filter tests the conntrack state of packets.
func (pl *Plan) AsksState() bool {
	return slices.ContainsFunc(pl.At(StageFilter), func(s Step) bool {
		return match.Tests(&pl.Program.Rules[s.Rule], packet.State)
	})
}

// Forwards reports whether the filter stage decides any forwarded packets.
func (pl *Plan) Forwards(steps []Step) bool {
	return pl.DefaultActs(StageFilter) || pl.CheckedAt(StageFilter) || slices.ContainsFunc(steps, func(s Step) bool {
		r := &pl.Program.Rules[s.Rule]
		return (!s.Again || r.Protect > 0) && pl.flow(r) != cost.Local
	})
}

// PartsFragments reports whether later fragments leave the chain of a stage before its rules. That costs every packet two tests. It is not needed if
// the rules are for IPv4 only: these rules test for fragments themselves, as their last test. For IPv6, each such rule would become two rules.
func (pl *Plan) PartsFragments(s Stage, steps []Step) bool {
	return (s != StageFilter || pl.FragmentsAtFilter(steps)) && slices.ContainsFunc(steps, func(step Step) bool {
		r := pl.Of(step, s)
		return match.ReadsHeader(r) && (len(r.Payload) > 0 || !pl.onlyIPv4(r))
	})
}

// onlyIPv4 reports whether a rule matches only IPv4 packets, because of its family or its addresses.
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

// FragmentsAtFilter reports whether later fragments may arrive at filter while steps of that stage test for fragments, or test fields that later
// fragments do not have. Only conntrack reassembles fragments before filter, and only if it is needed for a state, for SYNPROXY, or for
// packet.SenderChecks.
func (pl *Plan) FragmentsAtFilter(steps []Step) bool {
	tracked, header := pl.Proxies() || pl.CheckedAt(StageFilter), false
	for _, s := range steps {
		r := &pl.Program.Rules[s.Rule]
		tracked = tracked || match.Tests(r, packet.State)
		header = header || match.ReadsHeader(r) || match.Tests(r, packet.Fragment)
	}
	return header && !tracked
}

// Inline is the largest number of ranges that are written in a rule itself. A larger number of ranges becomes a named set.
const Inline = 8
