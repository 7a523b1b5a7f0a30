// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// longList is the number of rules from which a list is too long to be evaluated for each packet.
const longList = 1000

// The cost of one rule that does not match, in ns. It was measured on this project's machine (2 cores of an AMD EPYC, Linux 6.18): 6,328 ns for 500
// nft rules. Rules of iptables-legacy took 0.84 of nft's time in a comparison with 3,000 rules of one source address each at raw prerouting.
const (
	nftRule      = 12.5
	iptablesRule = 10.5
)

// cost returns the estimated time in ns that a number of rules takes for a packet that matches none of them.
func (b backend) cost(rules int) float64 {
	if b == iptables {
		return iptablesRule * float64(rules)
	}
	return nftRule * float64(rules)
}

// linearRules finds chains for incoming packets that have too many rules.
func linearRules(_ context.Context, h *host) []Finding {
	r, err := h.rules()
	if err != nil {
		return []Finding{unseen("rules", err)}
	}
	var found []Finding
	for _, err := range r.errs {
		found = append(found, unseen("rules", err))
	}
	lists := 0
	for _, c := range r.reached() {
		if c.rules > longList {
			found = append(found, r.tooLong(c))
			lists++
		}
	}
	return append(found, r.judgePath(lists > 0))
}

func (r *ruleset) tooLong(c *chain) Finding {
	ns := c.backend.cost(c.rules)
	packets := "each packet that goes through all of it"
	if c.nat {
		packets = "each new connection, which is each packet of a flood"
	}
	f := Finding{
		ID: "rules-linear", Severity: Warning,
		Evidence: fmt.Sprintf("chain %s has %s rules, one after the other (from %s)", c, wording.Count(uint64(c.rules)), c.source()),
		Numbers:  map[string]uint64{"rules": uint64(c.rules), "ns": uint64(ns)},
		Cost: fmt.Sprintf("about %s ns for %s: at most %s packets/s on a core; sets take the same time for one address or a million; "+
			"once the policy is applied the list can go",
			wording.Count(uint64(ns)), packets, wording.Count(uint64(1e9/ns))),
	}
	return f.command(r.importRules(c)...)
}

// importRules returns the commands that convert the chain's rules to a policy. In the policy, rules with one address each become sets.
func (r *ruleset) importRules(c *chain) []string {
	six := strings.TrimPrefix(c.family, "ip") // "6" for IPv6
	switch {
	case c.backend == iptables:
		return imported("ip"+six+"tables-legacy-save", "ip"+six+"tables-save")
	case r.byIptables(c.place):
		return imported("ip"+six+"tables-save", "ip"+six+"tables-save")
	}
	return imported("nft -j list ruleset", "nft")
}

// imported returns the commands that convert a tool's output to a policy.
func imported(tool, format string) []string {
	return []string{tool + " | floodwall import " + format + " - --output imported.yaml", "floodwall check imported.yaml"}
}

// byIptables reports whether iptables-nft made a table. Such a table has the name of an iptables table, and a chain with the name of a built-in
// chain.
func (r *ruleset) byIptables(p place) bool {
	if _, is := tablePriority[p.table]; !is || p.family != "ip" && p.family != "ip6" {
		return false
	}
	for _, name := range []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT"} {
		if r.byKey[chainKey{p, name}] != nil {
			return true
		}
	}
	return false
}

// path describes the rules that an incoming packet for this host passes if it matches none of them.
type path struct {
	version string // IPv4 or IPv6
	rules   int
	ns      float64
	longest *chain // the base chain with the most rules
}

// worstPath returns the path of the IP version that has more rules.
func (r *ruleset) worstPath() path {
	met := map[*chain]int{}
	worst := path{version: "IPv4"}
	for family, version := range map[string]string{"ip": "IPv4", "ip6": "IPv6"} {
		p := path{version: version}
		for _, c := range r.chains {
			local := c.hook == ingress || c.hook == prerouting || c.hook == input
			if !local || c.nat || c.family != family && c.family != "inet" && c.family != "netdev" {
				continue
			}
			n := r.met(c, met)
			p.rules += n
			p.ns += c.backend.cost(n)
			if p.longest == nil || n > met[p.longest] {
				p.longest = c
			}
		}
		if p.ns > worst.ns || p.ns == worst.ns && p.version < worst.version {
			worst = p
		}
	}
	return worst
}

// judgePath returns a finding about the path of packets for this host. `listed` says that another finding already names a list that is too long.
func (r *ruleset) judgePath(listed bool) Finding {
	p := r.worstPath()
	f := Finding{
		ID: "rules-path", Severity: OK,
		Evidence: fmt.Sprintf("an %s packet to this host that matches none meets up to %s rules (from nftables and iptables)",
			p.version, wording.Count(uint64(p.rules))),
		Numbers: map[string]uint64{"rules": uint64(p.rules), "ns": uint64(p.ns)},
		Cost:    fmt.Sprintf("about %s ns a packet, at %.1f ns a rule of nftables and %.1f of iptables", wording.Count(uint64(p.ns)), nftRule, iptablesRule),
	}
	switch {
	case p.rules <= longList/10:
		return f
	case p.rules > longList && !listed:
		f.Severity = Warning
	default:
		f.Severity = Note
	}
	return f.command(r.importRules(p.longest)...)
}
