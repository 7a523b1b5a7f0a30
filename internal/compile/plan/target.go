// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Target is the kernel interface for which a policy is compiled.
type Target string

// The targets.
const (
	TargetXDP      Target = "xdp"      // XDP, and nftables for the packets that XDP cannot decide
	TargetNftables Target = "nftables" // nftables alone
	TargetIptables Target = "iptables" // iptables, ip6tables and ipset
)

// Stage is the place in the kernel at which a rule runs.
type Stage string

// The stages, in the order in which a packet meets them.
const (
	StageXDP     Stage = "xdp"     // in the driver
	StageTC      Stage = "tc"      // at the ingress of tc; rules of StageXDP run there on devices in mode tc
	StageIngress Stage = "ingress" // the device's netfilter hook, before IP has seen the packet
	StageRaw     Stage = "raw"     // prerouting at priority -300, before conntrack
	StageFilter  Stage = "filter"  // input and forward at priority 0, after conntrack and routing
)

// capability has the stages and checks of a target, and the limits that it supports.
type capability struct {
	stages []Stage                        // earliest first
	lacks  packet.CheckSet                // checks that the target cannot make
	routed packet.CheckSet                // checks that need the routing table; raw is the first stage that can use it
	limit  func(l *ir.Limit) (why string) // the reason why the target's netfilter rules cannot express a limit; "" if they can
}

// capabilities has the capability of each target. Tests of the code generators compare the checks in this table with the generated code.
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

// stages returns the stages of the target, earliest first.
func (t Target) stages() []Stage { return capabilities[t].stages }

// Makes reports whether the target makes a check for at least some packets.
func (t Target) Makes(c packet.Check) bool { return !capabilities[t].lacks.Has(c) }

// CheckStage returns the stage at which the target makes a check: the first stage that can. The target must be able to make it. If replies come
// before packet.SenderChecks, netfilter makes these checks after conntrack, which identifies replies.
func (t Target) CheckStage(c packet.Check, repliesFirst bool) Stage {
	switch {
	case repliesFirst && t != TargetXDP && packet.SenderChecks.Has(c):
		return StageFilter
	case capabilities[t].routed.Has(c):
		return StageRaw
	}
	return t.stages()[0]
}

// CheckStage returns the stage of a check for the plan's target and program.
func (pl *Plan) CheckStage(c packet.Check) Stage {
	return pl.Target.CheckStage(c, pl.Program.RepliesFirst)
}

// Stages returns the stages of a target, in the order in which packets meet them.
func (t Target) Stages() []Stage { return slices.Clone(t.stages()) }

// rank returns a stage's position in the order in which packets meet the stages. The order is the same on all targets.
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

// StageEgress is the stage at which guards limit responses: the tc egress hook of a device. Rules do not run at this stage.
const StageEgress Stage = "egress"
