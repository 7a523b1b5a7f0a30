package compile

import "github.com/floodwall/floodwall/internal/packet"

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

// stages are the stages of each target, earliest first.
var stages = map[Target][]Stage{
	TargetXDP:      {StageXDP, StageIngress, StageRaw, StageFilter},
	TargetNftables: {StageIngress, StageRaw, StageFilter},
	TargetIptables: {StageRaw, StageFilter},
}

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

// CheckStage is the stage at which a target makes a check, if it makes it: the first, unless the check needs more.
func CheckStage(t Target, c packet.Check) Stage {
	if t == TargetNftables && nftChecks[c].raw {
		return StageRaw
	}
	return stages[t][0]
}
