// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Proxied returns the protection of a rule that uses the kernel's SYNPROXY, which works on forwarded packets. It returns nil if the rule does not use
// SYNPROXY. Such a rule has two stages: the stage of its verdict, and the filter stage after conntrack. At filter, SYNPROXY gets those packets of the
// rule that belong to no connection.
func (pl *Plan) Proxied(rule int) *ir.Protection {
	number := pl.Program.Rules[rule].Protect
	if number == 0 || !pl.Program.Protections[number-1].Router {
		return nil
	}
	return &pl.Program.Protections[number-1]
}

// ProxyAnswers returns the rules with SYNPROXY, restricted to the ACKs that SYNPROXY sends to servers.
func (pl *Plan) ProxyAnswers() (rules []ir.Rule) {
	for i, r := range pl.Program.Rules {
		if pl.Proxied(i) != nil {
			r.Match = match.Also(slices.Clone(r.Match), match.ACK)
			rules = append(rules, r)
		}
	}
	return rules
}

// ProxiedAt reports whether SYNPROXY is used for a rule at a stage.
func (pl *Plan) ProxiedAt(rule int, s Stage) bool { return s == StageFilter && pl.Proxied(rule) != nil }

// ServerDSCP is the DSCP with which XDP marks a packet that SYNPROXY must not get, although conntrack may not know its connection: DSCP_SERVER of
// bpf/protect.h.
const ServerDSCP = 3

// Unconnected returns a rule with SYNPROXY, restricted to packets without a connection. SYNPROXY gets these packets, or they are dropped. With XDP,
// they are all packets except those with the mark ServerDSCP. On other targets the rule is returned unchanged.
func (pl *Plan) Unconnected(r *ir.Rule) *ir.Rule {
	out := *r
	if pl.Target == TargetXDP {
		others := []ir.Range{{First: 0, Last: ServerDSCP - 1}, {First: ServerDSCP + 1, Last: 63}}
		out.Match = match.Also(slices.Clone(r.Match), ir.Match{Field: packet.DSCP, Values: others})
	}
	return &out
}

// Proxies reports whether any rule uses SYNPROXY.
func (pl *Plan) Proxies() bool {
	return slices.ContainsFunc(pl.Program.Protections, func(p ir.Protection) bool { return p.Router })
}

// Untracks reports whether a stage must exempt a rule's SYNs from conntrack, because SYNPROXY answers all of them. With XDP, SYNPROXY answers no
// SYNs. SYNs that XDP passes are tracked like other packets. The last packet of a handshake that XDP has started belongs to no connection.
func (pl *Plan) Untracks(rule int, s Stage) bool {
	return pl.Target != TargetXDP && s == StageRaw && pl.Proxied(rule) != nil
}

// protectable returns an error if a rule with a protection cannot run at the stage of the protection. other is the rule that prevents it. If other is
// nil, a test of the rule itself prevents it.
func (pl *Plan) protectable(r *ir.Rule, at Assignment, other *ir.Rule) *StageError {
	if r.Protect == 0 {
		return nil
	}
	first, needs := pl.First(), "XDP answers SYNs"
	if pl.Target != TargetXDP {
		first, needs = StageRaw, "SYNs are kept from conntrack"
	}
	if !pl.after(at.Stage, first) {
		return nil
	}
	e := pl.refuse(r, "syn", fmt.Sprintf("it runs at %s (%s), but at %s %s", at.Stage, at.Why, first, needs),
		"protect the service without a placement or a key that a later stage serves")
	if other != nil {
		ports := portsText(pl.Program.Protections[r.Protect-1].Ports)
		e.Remedy = fmt.Sprintf("let rule %q (line %d) match no packet of the service: add `not: {port: %s}` to it, or a `port` without %s",
			other.Name, other.Line, ports, ports)
	}
	return e
}

// portsText formats ports in the syntax of a policy.
func portsText(ports []ir.Range) string {
	var words []string
	for _, r := range ports {
		if r.First == r.Last {
			words = append(words, fmt.Sprint(r.First))
		} else {
			words = append(words, fmt.Sprintf("%d-%d", r.First, r.Last))
		}
	}
	if len(words) == 1 {
		return words[0]
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// trackable adds an error for each service that uses SYNPROXY but is exempt from conntrack by the policy.
func (pl *Plan) trackable(errs *StageErrors) {
	for _, p := range pl.Program.Protections {
		if why := pl.keptFromProxy(&p); why != "" {
			errs.add(&StageError{pl.Program.File, p.Service, p.Line, p.Col, "untracked",
				"SYNPROXY, which protects connections to the service, works by conntrack, and " + why,
				"narrow `untracked`, or protect the service where it runs"})
		}
		for _, s := range pl.Program.Untracked.Services {
			if p.Router && ranges.Overlap(p.Ports, s.Ports) {
				errs.add(&StageError{pl.Program.File, s.Name, p.Line, p.Col, "track: false",
					"SYNPROXY, which protects connections to the service, works by conntrack", "leave `track` out, or protect it where it runs"})
			}
		}
	}
}

// For adapts a program to a target. Without XDP, only the kernel can answer SYNs to this host. So in mode host a protection becomes a rule that drops
// SYNs above its limits. In mode router that rule comes before SYNPROXY. The notes describe what the target does not protect. If For is called for
// its own result, it changes nothing.
func For(p *ir.Program, t Target) (*ir.Program, []string) {
	if t == TargetXDP || len(p.Protections) == 0 {
		return p, nil
	}
	var notes []string
	out := limitSYNs(p, t, func(int) bool { return true }, func(protection *ir.Protection, lost []string) {
		notes = append(notes, p.Place(protection.Line, protection.Col)+fallbackNote(t, protection, lost))
	})
	return out, notes
}

// WithoutCookies returns a program for XDP that does not answer SYNs for some protections. which has the indices of these protections. Each of them
// becomes a rule that drops SYNs above its limits.
func WithoutCookies(p *ir.Program, which []int) *ir.Program {
	return limitSYNs(p, TargetXDP, func(i int) bool { return slices.Contains(which, i) }, func(*ir.Protection, []string) {})
}

// limitSYNs replaces the rules of protections by rules with their limits. It does so for each protection for whose index some returns true. In router
// mode the new rule comes before the protected rule and does not replace it. For each of these protections limitSYNs calls tell with the reasons for
// limits that the target does not support.
func limitSYNs(p *ir.Program, t Target, some func(i int) bool, tell func(*ir.Protection, []string)) *ir.Program {
	out := *p
	out.Rules = nil
	for _, r := range p.Rules {
		if r.Protect == 0 || !some(r.Protect-1) {
			out.Rules = append(out.Rules, r)
			continue
		}
		protection := &p.Protections[r.Protect-1]
		limit, lost := synLimit(p, t, &r, protection)
		if len(limit.Over) > 0 && !slices.ContainsFunc(p.Rules, func(o ir.Rule) bool { return o.Name == limit.Name }) {
			out.Rules = append(out.Rules, limit)
		}
		if protection.Router {
			out.Rules = append(out.Rules, r)
		}
		tell(protection, lost)
	}
	return &out
}

// synLimit returns the rule that drops SYNs above a protection's limits. lost has the reason for each limit that the target does not support.
func synLimit(p *ir.Program, t Target, r *ir.Rule, protection *ir.Protection) (limit ir.Rule, lost []string) {
	limit = *r
	limit.Name, limit.Verdict, limit.Protect = protection.Service+":syn-limit", ir.Drop, 0
	limit.Match = match.Also(slices.Clone(r.Match), match.SYN)
	pl := &Plan{Target: t, Program: p}
	for _, i := range protection.Limits {
		if why := pl.unfitLimit(&limit, &p.Limits[i], StageRaw); why != "" {
			lost = append(lost, why)
			continue
		}
		limit.Over = append(limit.Over, i)
	}
	return limit, lost
}

// windowsNote describes a limitation on iptables. It concerns servers that answer SYNPROXY's SYN with a SYN cookie. Such a server reads the client's
// windows without their scale. The function proxied of package iptables explains why.
const windowsNote = "; while a server's own backlog is full, connections to it begin without window scaling, SACK and " +
	"timestamps, and are slow; nftables has not this limit"

// keyedNote returns a note about connections that are signed with a key. SYNPROXY does not sign its SYN-ACK, so the client rejects it.
func keyedNote(p *ir.Protection) string {
	note := "; connections with TCP-AO or MD5 cannot begin, as it has no keys"
	if len(p.Keyed) > 0 {
		note += ", and `authenticated` has no effect"
	}
	return note
}

// ElsewhereNotes returns notes about protections that XDP can implement completely, but other targets cannot.
func ElsewhereNotes(p *ir.Program) (notes []string) {
	for i := range p.Protections {
		if s := &p.Protections[i]; s.Router && len(s.Keyed) > 0 {
			notes = append(notes, fmt.Sprintf("%sservice %q: on targets nftables and iptables the kernel's SYNPROXY alone answers its SYNs%s",
				p.Place(s.Line, s.Col), s.Service, keyedNote(s)))
		}
	}
	return notes
}

func fallbackNote(t Target, p *ir.Protection, lost []string) string {
	note := fmt.Sprintf("service %q: %s has no XDP: ", p.Service, t)
	if p.Router {
		note += "the kernel's SYNPROXY alone answers all SYNs, at several times the processor time"
		note += keyedNote(p)
		if t == TargetIptables {
			note += windowsNote
		}
	} else {
		note += "the kernel itself answers its SYNs, with cookies (net.ipv4.tcp_syncookies) when its queue is full: these connections " +
			"lose options unless they have timestamps"
	}
	for _, why := range lost {
		note += "; one of its limits is left out: " + why
	}
	return note
}

// keptFromProxy returns the part of `untracked` that exempts packets of a service in mode router from conntrack. It returns "" if no part does.
func (pl *Plan) keptFromProxy(p *ir.Protection) string {
	if !p.Router {
		return ""
	}
	u := &pl.Program.Untracked
	if u.All {
		return "`untracked` is all"
	}
	served := ir.Rule{Match: []ir.Match{ // clients do not use a system port as their source port
		{Field: packet.DPort, Values: p.Ports},
		{Field: packet.SPort, Values: []ir.Range{{First: 1024, Last: 65535}}},
	}}
	for i := range u.Flows {
		back := u.Flows[i].Reversed()
		if match.Overlap(pl.Program.Sets, &served, &u.Flows[i]) || match.Overlap(pl.Program.Sets, &served, &back) {
			return fmt.Sprintf("`untracked` has %s", u.Flows[i].Name)
		}
	}
	return ""
}
