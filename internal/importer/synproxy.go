// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// A rule with the target SYNPROXY becomes a service whose SYNs are answered with SYN cookies. The service decides about all packets to its ports that
// reach it. Conntrack does not know the connections of the service, so rules that test a connection's state match only other packets.

// ownNotrack clears Notrack in rules that only exempt the SYNs for SYNPROXY from connection tracking, because the service does that
// itself.
func ownNotrack(rs *saved.Ruleset) {
	ports := saved.Values{}
	eachOf(rs, func(r *saved.Rule) {
		if _, ok := r.Proxies(); ok {
			for _, a := range r.Alts {
				ports = ports.Or(a.Field[packet.DPort].And(saved.TCPPorts))
			}
		}
	})
	eachOf(rs, func(r *saved.Rule) {
		other := slices.ContainsFunc(r.Alts, func(a saved.Cond) bool {
			return !a.Field[packet.DPort].Within(ports)
		})
		if len(ports) > 0 && len(r.Alts) > 0 && !other {
			r.Notrack = false
		}
	})
}

func eachOf(rs *saved.Ruleset, visit func(*saved.Rule)) {
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			eachRule(c, visit)
		}
	}
}

// proxies produces a service for the packets of a SYNPROXY rule. It returns false if a service cannot express the rule.
func (p *traversal) proxies(r *saved.Rule, conds []saved.Cond) bool {
	keys, ok := r.Proxies()
	if !ok || !p.sure {
		return false
	}
	of := slices.Clone(conds)
	for i := range of {
		c := &of[i]
		c.Field[packet.State], c.Field[packet.Flags], c.Field[packet.Fragment], c.Field[packet.Proto] = nil, nil, nil, nil
		ports := c.Field[packet.DPort]
		rest := *c
		rest.Field[packet.DPort] = nil
		if p.hook == saved.HookForward {
			rest.Dst = saved.AddrTest{} // a service behind this host has any address except the host's own
			if c.Dst.In != nil || c.Dst.Out != nil && !c.Dst.Out.Local {
				return false
			}
		} else if rest.Dst.In != nil && rest.Dst.In.Local {
			rest.Dst.In = nil // a client of the service always sends to this host's address
		}
		if ports == nil || !ports.Within(saved.TCPPorts) || !rest.Everything() {
			return false
		}
	}
	if p.hook == saved.HookForward {
		keys += ", mode: router"
	}
	n := len(p.out)
	p.emit(r, of, proxied, false)
	for i := range p.out[n:] {
		p.out[n+i].name, p.out[n+i].comment, p.out[n+i].behind = keys, "", p.hook == saved.HookForward
	}
	return true
}

// service is an entry of the policy under services.
type service struct {
	ports saved.Values
	keys  string
	at    []saved.Place
}

// separate moves the services out of a list of rules. It also removes the packets of the services from rules that come after them, and from rules
// that test a state.
func separate(list []flat, families saved.Family, rep *saved.Report) (rest []flat, services []service) {
	for i := range list {
		if list[i].verdict != proxied {
			continue
		}
		f := &list[i]
		if families == saved.IPv4|saved.IPv6 && f.Field[packet.Family] != nil {
			rep.Lose(f.at[0], "the rule is for one family, and the service that answers SYNs for both")
		}
		ports := f.Field[packet.DPort]
		for _, s := range services {
			ports = ports.And(s.ports.Not(packet.DPort))
		}
		if len(ports) > 0 {
			services = append(services, service{ports, f.name, f.at})
		}
	}
	for i, f := range list {
		if f.verdict == proxied {
			continue
		}
		parts := []flat{f}
		for j, s := range list {
			if s.verdict == proxied && (j < i || f.Field[packet.State] != nil) {
				parts = s.spares(parts)
			}
		}
		rest = append(rest, parts...)
	}
	return rest, services
}

// spares removes the packets of a service from rules. If the service is behind this host, packets to the host itself are not removed.
func (f *flat) spares(list []flat) (out []flat) {
	for _, rule := range list {
		if f.behind && rule.Dst.In != nil && rule.Dst.In.Local {
			out = append(out, rule)
			continue
		}
		here := rule
		if rule.beside(f.Field[packet.DPort]); rule.Field[packet.DPort] == nil || len(rule.Field[packet.DPort]) > 0 {
			out = append(out, rule)
		}
		here.Cond = here.With(packet.DPort, f.Field[packet.DPort]).To(saved.AddrTest{In: &saved.AddrSet{Local: true}})
		if f.behind && (possible(here.Cond, saved.IPv4) || possible(here.Cond, saved.IPv6)) {
			out = append(out, here)
		}
	}
	return out
}

func possible(c saved.Cond, f saved.Family) bool {
	_, ok := c.Possible(f)
	return ok
}

// beside removes packets to TCP ports from f.
func (f *flat) beside(ports saved.Values) {
	if of := f.Implied(); of[packet.Proto].Has(saved.ProtoTCP) {
		f.Field[packet.DPort] = f.Field[packet.DPort].And(ports.Not(packet.DPort))
	}
}

// line returns the policy's line for a service whose SYNs are always answered with cookies.
func (s service) line(name string) string {
	r := renderer{}
	r.ports("port", s.ports)
	return fmt.Sprintf("  - {name: %s, %s, syn: {%s}}  # %s\n", name, strings.Join(r.keys.is, ", "), s.keys, remark(&flat{at: s.at}))
}
