package plan

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Target is what a policy is compiled to.
type Target string

// The targets.
const (
	TargetXDP      Target = "xdp"      // XDP, and nftables beside it for what XDP cannot decide
	TargetNftables Target = "nftables" // nftables alone
	TargetIptables Target = "iptables" // iptables, ip6tables and ipset
)

// Stage is where in the kernel a rule runs.
type Stage string

// The stages, in the order in which a packet meets them.
const (
	StageXDP     Stage = "xdp"     // in the driver
	StageIngress Stage = "ingress" // the device's netfilter hook, before IP has seen the packet
	StageRaw     Stage = "raw"     // prerouting at priority -300, before conntrack
	StageFilter  Stage = "filter"  // input and forward at priority 0, behind conntrack and routing
)

// capability is what a target can.
type capability struct {
	stages []Stage                        // earliest first
	lacks  packet.CheckSet                // the checks that it has no test for
	routed packet.CheckSet                // the checks that ask the routing table, which raw is the first stage to do
	limit  func(l *ir.Limit) (why string) // why netfilter, as the target uses it, does not have a limit; "" when it has
}

// capabilities are those of all targets. Tests of the code generators compare the checks with what they write.
var capabilities = map[Target]capability{
	TargetXDP: {
		stages: []Stage{StageXDP, StageIngress, StageRaw, StageFilter},
		limit:  unfitNftables,
	},
	TargetNftables: {
		stages: []Stage{StageIngress, StageRaw, StageFilter},
		lacks: checkSet(packet.IPHeader, packet.VLANDepth, packet.FragmentOverflow, packet.ExtHeaders, packet.Land, packet.TCPOptions,
			packet.SYNData, packet.IPChecksum),
		routed: checkSet(packet.OwnSource),
		limit:  unfitNftables,
	},
	TargetIptables: {
		stages: []Stage{StageRaw, StageFilter},
		lacks: checkSet(packet.IPHeader, packet.VLANDepth, packet.SourceMAC, packet.IPOptions, packet.FragmentOverflow, packet.ExtHeaders,
			packet.ExtOrder, packet.Land, packet.TCPHeader, packet.TCPOptions, packet.SYNData, packet.UDPLength, packet.IPChecksum),
		limit: unfitIptables,
	},
}

func checkSet(list ...packet.Check) (set packet.CheckSet) {
	for _, c := range list {
		set = set.With(c)
	}
	return set
}

// stages are the stages of the target, earliest first.
func (t Target) stages() []Stage { return capabilities[t].stages }

// Makes reports whether the target has any test for a check.
func (t Target) Makes(c packet.Check) bool { return !capabilities[t].lacks.Has(c) }

// CheckStage is the stage at which the target makes a check, if it makes it: the first, unless the check needs more. Where replies come before
// packet.SenderChecks, netfilter makes these behind conntrack, which tells replies.
func (t Target) CheckStage(c packet.Check, repliesFirst bool) Stage {
	switch {
	case repliesFirst && t != TargetXDP && packet.SenderChecks.Has(c):
		return StageFilter
	case capabilities[t].routed.Has(c):
		return StageRaw
	}
	return t.stages()[0]
}

// CheckStage is that of the plan's target and program.
func (pl *Plan) CheckStage(c packet.Check) Stage {
	return pl.Target.CheckStage(c, pl.Program.RepliesFirst)
}

// Stages are those of a target, in the order in which packets meet them.
func (t Target) Stages() []Stage { return slices.Clone(t.stages()) }

// rank is a stage's place in the order in which packets meet them, which is the same on all targets.
func (s Stage) rank() int {
	switch s {
	case StageXDP:
		return 0
	case StageIngress:
		return 1
	case StageRaw:
		return 2
	}
	return 3
}

// StageEgress is where guards limit responses: the tc hook for what leaves a device. No rule runs there.
const StageEgress Stage = "egress"
