// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Unfit returns the key of a rule that a stage cannot implement, and the reason. It returns "" if the stage can implement the whole rule.
func (pl *Plan) Unfit(r *ir.Rule, s Stage) (key, why string) {
	if why := pl.unfitConnections(r, s); why != "" {
		return "over: connections", why
	}
	for _, m := range r.Match {
		if m.Field == packet.State && (r.Reply || r.Spares) && s == StageXDP {
			continue
		}
		if m.Field == packet.Fragment && (r.Kind == ir.RuleKindEssential || r.Reply) && s == StageFilter {
			continue // conntrack has reassembled fragments here, so no packet needs the rule
		}
		if why := pl.unfitField(m, s); why != "" {
			return m.Field.String(), why
		}
	}
	if key, why := pl.unfitCondition(r, s); key != "" {
		return key, why
	}
	switch {
	case r.Verdict == ir.Reject && s == StageXDP:
		return "then: reject", "the kernel makes the answer, from netfilter on"
	case r.Verdict == ir.Reject && s == StageIngress:
		// __icmp_send of net/ipv4/icmp.c copies the options that IPCB describes. Before ip_rcv, these bytes are those of a driver or of GRO.
		return "then: reject", "the kernel's ICMP error copies what IP has noted of the packet, and before IP this can crash the kernel"
	case r.Verdict == ir.Reject && s == StageRaw && pl.Target == TargetIptables:
		return "then: reject", "REJECT of iptables works in the filter table only"
	case r.Verdict == ir.Reject && !pl.answers(s):
		return "then: reject", fmt.Sprintf("the check %s is made later, and what fails it must get no answer", pl.lastCheck(s))
	case s == StageIngress && pl.asksLocal(r):
		return "local", "whether an address is the host's own is known from IP's routing table, which nftables asks from prerouting on"
	}
	return "", ""
}

// unfitAgain does the same as Unfit, for a later stage that tests a rule a second time because the rule has passed packets. A rule about later
// fragments can always run at filter. If conntrack has reassembled the fragments, the rule matches nothing. If nothing needs conntrack, the fragments
// arrive unchanged.
func (pl *Plan) unfitAgain(r *ir.Rule, s Stage) (key, why string) {
	if match.Limited(r) {
		return "over", "its packets would be charged a second time"
	}
	if s == StageFilter && onlyLater(r) {
		bare := *r
		bare.Match = slices.DeleteFunc(slices.Clone(r.Match), func(m ir.Match) bool { return m.Field == packet.Fragment })
		r = &bare
	}
	return pl.Unfit(r, s)
}

// lastCheck returns the name of a check that drops packets at a stage later than s. It returns "" if there is none.
func (pl *Plan) lastCheck(s Stage) string {
	for _, c := range allChecks(pl.Program.Checks) {
		if pl.after(pl.CheckStage(c), s) {
			return c.String()
		}
	}
	return ""
}

// answers reports whether a stage may answer packets. It may do so only if no check is made at a later stage.
func (pl *Plan) answers(s Stage) bool {
	return pl.lastCheck(s) == ""
}

func (pl *Plan) unfitField(m ir.Match, s Stage) string {
	switch m.Field {
	case packet.DNS, packet.Verified:
		if s != StageXDP {
			return onlyXDP
		}
	case packet.State:
		if s != StageFilter {
			return "conntrack knows the state, which sees the packet later"
		}
	case packet.VLAN:
		if s == StageRaw || s == StageFilter {
			return "the VLAN tag is gone when IP has the packet"
		}
	case packet.Fragment:
		if s == StageFilter {
			return "conntrack has put the fragments together"
		}
	case packet.Flags:
		if pl.Target == TargetIptables && !sixFlags(m.Values) {
			return "iptables tests the flags fin, syn, rst, psh, ack and urg only"
		}
	}
	return ""
}

// sixFlags reports whether values are independent of the two highest bits of the flags byte, ECE and CWR.
func sixFlags(values []ir.Range) bool {
	has := func(v uint32) bool { return ir.Match{Values: values}.Has(v) }
	for v := range uint32(64) {
		if has(v) != has(v|64) || has(v) != has(v|128) || has(v) != has(v|192) {
			return false
		}
	}
	return true
}

// asksLocal reports whether a rule tests for the host's own addresses.
func (pl *Plan) asksLocal(r *ir.Rule) bool {
	return slices.ContainsFunc(slices.Concat(r.Src, r.Dst), func(m ir.AddrMatch) bool { return match.HasLocal(pl.Program.Sets, m) })
}
