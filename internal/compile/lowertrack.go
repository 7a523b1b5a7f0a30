// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// untracked lowers the traffic, other than services, that the policy exempts from conntrack. It adds notes about rules that test for a state which
// exempt packets do not have.
func (l *lowering) untracked(p *policy.Policy) (errs policy.Errors) {
	u := &l.program.Untracked
	u.All = slices.Contains(p.Untracked, policy.AllTraffic)
	u.Loopback = slices.Contains(p.Untracked, policy.Loopback)
	u.Multicast = slices.Contains(p.Untracked, policy.Multicast)
	u.Broadcast = slices.Contains(p.Untracked, policy.Broadcast)
	for _, e := range p.Exempt {
		errs = append(errs, l.changing(p, e)...)
		flow := ir.Rule{Line: e.Pos.Line}
		l.match(&flow, e.Match, false)
		flow.Name = l.program.FlowText(&flow)
		u.Flows = append(u.Flows, flow)
	}
	errs = append(errs, l.uncounted(p)...)
	if errs == nil {
		l.statesNotHad()
	}
	return errs
}

// uncounted returns an error for each rule that counts connections of a service whose connections conntrack does not count. Such a service is exempt
// from conntrack, or its connections are established by a SYN protection.
func (l *lowering) uncounted(p *policy.Policy) (errs policy.Errors) {
	for i, r := range p.Rules {
		if r.Connections == nil {
			continue
		}
		for _, s := range p.Services {
			if (s.Track == policy.TrackNot || s.Syn != nil) && l.reaches(&l.program.Rules[i], s) {
				errs = append(errs, notCounted(p.File, r, s))
				break
			}
		}
	}
	return errs
}

// reaches reports whether a rule can match untracked packets to a service. If the service has a SYN protection, only its TCP packets are untracked.
func (l *lowering) reaches(r *ir.Rule, s policy.Service) bool {
	ports := s.Port
	if s.Track != policy.TrackNot {
		ports = ofProto(packet.ProtoTCP, ports)
	}
	if len(ports) == 0 {
		return false
	}
	return match.Overlap(l.program.Sets, r, &ir.Rule{Match: fieldMatches(policy.Match{Port: ports})})
}

// notCounted returns the error that a rule cannot count the connections of a service.
func notCounted(file string, r policy.Rule, s policy.Service) *policy.Error {
	why, remedy := "conntrack counts connections, and `track: false` keeps service %q from it", "take `track: false` out of the service"
	if s.Syn != nil {
		why, remedy = "conntrack counts connections, and `syn` begins those of service %q without it", "limit what one source may begin there with `syn: {limit: …}`"
	}
	return &policy.Error{File: file, Line: r.Connections.Pos.Line, Col: r.Connections.Pos.Col,
		Msg:  fmt.Sprintf("rule %q: "+why, r.Name, s.Name),
		Hint: fmt.Sprintf("let the rule match no packet of the service (`port`, or `not: {port: …}`), or %s", remedy)}
}

// changing returns an error for each set in an exemption whose entries change while the policy runs. Only netfilter has exemptions, whichever target
// contains the set.
func (l *lowering) changing(p *policy.Policy, e policy.Exempt) (errs policy.Errors) {
	for _, a := range slices.Concat(e.Match.From, e.Match.To) {
		if a.Set == "" || l.program.Sets[l.named[a.Set]].Fixed() != nil {
			continue
		}
		errs = append(errs, &policy.Error{File: p.File, Line: a.Pos.Line, Col: a.Pos.Col,
			Msg:  fmt.Sprintf("untracked: the addresses of set %q change while the policy runs", a.Set),
			Hint: "name the addresses, or a set that lists them"})
	}
	return errs
}

// statesNotHad adds notes about rules that test for a state which untracked packets do not have, if such packets can pass all other tests of the
// rule.
func (l *lowering) statesNotHad() {
	u := &l.program.Untracked
	for i := range l.program.Rules {
		r := &l.program.Rules[i]
		states := match.Values(r, packet.State)
		if !match.Tests(r, packet.State) || (ir.Match{Values: states}).Has(packet.StateUntracked) {
			continue
		}
		kept := ""
		if u.All {
			kept = "any packet"
		}
		for j := range u.Flows {
			back := u.Flows[j].Reversed()
			if kept == "" && (match.Overlap(l.program.Sets, r, &u.Flows[j]) || match.Overlap(l.program.Sets, r, &back)) {
				kept = "packets of " + u.Flows[j].Name
			}
		}
		switch {
		case kept != "" && r.Connections != nil:
			l.notes = append(l.notes, fmt.Sprintf("line %d: %q counts connections, and does not see %s: `untracked` keeps these from conntrack, which counts them",
				r.Line, r.Name, kept))
		case kept != "" && r.Reply:
			l.notes = append(l.notes, fmt.Sprintf("replies of %s pass where XDP tells them only: `untracked` keeps these from conntrack, which nftables and iptables ask",
				strings.TrimPrefix(kept, "packets of ")))
		case kept != "":
			l.notes = append(l.notes, fmt.Sprintf("line %d: %q asks for state %s and does not match %s: `untracked` gives these the state untracked",
				r.Line, r.Name, strings.TrimPrefix(ir.Match{Field: packet.State, Values: states}.String(), "state="), kept))
		}
	}
}
