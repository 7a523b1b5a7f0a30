package generation

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Ruleset has temporary rules for a target of netfilter. It drops what they match, and leaves all else to the ruleset of the policy, before
// or after it: in netfilter each of two tables may drop a packet. counted is what counters of the ruleset before have counted.
func Ruleset(
	name string, target plan.Target, devices []string, list []manifest.Temporary, spared []netip.Prefix, counted map[string]netfilter.Count,
) (*netfilter.Ruleset, error) {
	program, err := Before(&ir.Program{Default: ir.Pass}, list, spared)
	if err != nil {
		return nil, err
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
