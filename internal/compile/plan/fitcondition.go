// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
)

// onlyXDP is the reason why netfilter cannot implement the DNS guard.
const onlyXDP = "netfilter does not read DNS messages"

// unfitCondition does the same as Unfit, for all tests and actions of a rule except addresses, fields, and the verdicts that all targets support.
func (pl *Plan) unfitCondition(r *ir.Rule, s Stage) (key, why string) {
	if s == StageXDP {
		return "", ""
	}
	switch {
	case r.Asks != ir.NoFlood:
		return "udp", "netfilter does not know whom a service has answered"
	case len(r.Names) > 0:
		return "dns: name", onlyXDP
	case r.Unanswered:
		return "guard: names", onlyXDP
	case r.Verdict == ir.Truncate:
		return "then: truncate", onlyXDP
	}
	for _, m := range r.Payload {
		if key, why := pl.unfitPayload(r, m, s); key != "" {
			return key, why
		}
	}
	for _, i := range r.Over {
		if why := pl.unfitLimit(r, &pl.Program.Limits[i], s); why != "" {
			return "over", why
		}
	}
	if r.Sample > 0 { // a rule with a ban needs samples as evidence
		return "sample", "only XDP hands packets to user space"
	}
	return "", ""
}

// unfitLimit returns the reason why a stage cannot implement a limit. It returns "" if it can. At ingress a packet still has the padding of its
// frame. The kernel removes the padding when IP receives the packet (net/ipv4/ip_input.c, ip_rcv_core). So limits of bits need a later stage.
func (pl *Plan) unfitLimit(r *ir.Rule, l *ir.Limit, s Stage) (why string) {
	switch {
	case l.Ban != nil:
		return "only XDP tells whom it is to ban"
	case pl.Target == TargetIptables && r.Observe && (l.Src != nil || l.Dst != nil):
		return "hashlimit drops packets of prefixes that it has no more space for, which a rule that observes must not"
	case pl.Target == TargetIptables && l.Src == nil && l.Dst == nil && len(match.Families(pl.Program.Sets, r)) > 1:
		return "iptables counts IPv4 and IPv6 apart, so a limit for all is one of either: ask for a family"
	case pl.Target != TargetIptables && l.Bits && s == StageIngress:
		return "what fills a short frame would be counted"
	}
	return capabilities[pl.Target].limit(l)
}

// unfitConnections returns the reason why a stage cannot count the connections of a rule. It returns "" if it can, or if the rule counts none. XDP
// sees neither the packets that this host sends nor the end of a connection. Its table of proved connections does not contain the client of a
// connection.
func (pl *Plan) unfitConnections(r *ir.Rule, s Stage) (why string) {
	c := r.Connections
	switch {
	case c == nil:
		return ""
	case s != StageFilter:
		return "conntrack knows the connections, which sees the packet later"
	case pl.Target == TargetIptables && c.Src != nil && c.Dst != nil:
		return "connlimit counts by sources or by destinations, not by pairs"
	}
	return ""
}

func (pl *Plan) unfitPayload(r *ir.Rule, m ir.PayloadMatch, s Stage) (key, why string) {
	switch {
	case len(m.Any) > 0 && pl.Target != TargetIptables:
		return "payload: contains", "nftables has no search for text"
	case len(m.Any) > 0 && slices.ContainsFunc(match.PayloadKinds(r), func(k match.PayloadKind) bool { return k.Kind != match.UDP && k.Kind != match.LaterFragment }):
		return "payload: contains", "iptables searches at fixed places, and only that of the payload of UDP is known: ask for `proto: udp`"
	case slices.ContainsFunc(m.Any, foldsMore):
		return "payload: nocase", "iptables takes letters of Latin-1 for the same in both cases, not only those of ASCII"
	case s == StageIngress:
		return "payload: at", "a short packet is not yet cut off from what fills its frame"
	}
	return "", ""
}

// foldsMore reports whether the kernel's string match would find more spellings of a text than ir.Pattern allows. The kernel ignores the case of all
// Latin-1 letters, not only of ASCII letters (lib/textsearch.c and lib/ctype.c).
func foldsMore(p ir.Pattern) bool {
	return p.NoCase && slices.ContainsFunc(p.Text, func(b byte) bool { return b >= 0xc0 })
}

// unguarded adds an error for each service whose guard the target cannot implement.
func (pl *Plan) unguarded(errs *StageErrors) {
	if pl.Target == TargetXDP {
		return
	}
	for _, g := range pl.Program.Guards {
		errs.add(&StageError{pl.Program.File, g.Service, g.Line, g.Col, "guard", onlyXDP, fmt.Sprintf("use --target %s", TargetXDP)})
	}
}
