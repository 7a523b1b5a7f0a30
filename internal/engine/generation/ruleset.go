// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Ruleset compiles temporary rules into a ruleset for a target of netfilter. The ruleset drops packets that match these rules. It passes all other
// packets to the ruleset of the policy, which runs before or after it. Each of the two tables may drop a packet. `counted` has the counts of the
// ruleset that the new one replaces.
func Ruleset(
	name string, target plan.Target, devices []string, list []manifest.Temporary, spared []netip.Prefix, counted map[string]netfilter.Count,
) (*netfilter.Ruleset, error) {
	program, err := Before(&ir.Program{Default: ir.Pass}, list, spared)
	if err != nil {
		return nil, err
	}
	for i := range program.Rules {
		seesFragments(&program.Rules[i])
	}
	stages, err := plan.Hoist(program, target)
	if err != nil {
		return nil, err
	}
	counts := func(name string) (uint64, uint64) { return counted[name].Packets, counted[name].Bytes }
	if target == plan.TargetIptables {
		x, err := iptables.Generate(stages, iptables.Options{Name: name, Devices: devices, Counts: counts})
		if err != nil {
			return nil, err
		}
		return netfilter.OfIptables(program, x, name), nil
	}
	n, err := nftables.Generate(stages, nftables.Options{Table: name, Devices: devices, Counts: counts})
	if err != nil {
		return nil, err
	}
	return netfilter.OfNftables(program, n), nil
}

// seesFragments makes a rule that matches fragments run before conntrack. For this it removes the condition that spares replies: conntrack recognises
// replies but also reassembles fragments, so no packet is a fragment after conntrack.
func seesFragments(r *ir.Rule) {
	about := func(m ir.Match) bool { return m.Field == packet.Fragment && !m.Has(packet.FragmentNone) }
	if r.Spares && slices.ContainsFunc(r.Match, about) {
		r.Spares = false
		r.Match = slices.DeleteFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.State })
	}
}
