package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// A list of this many rules is too long to go through for each packet.
const longList = 1000

// What one rule that does not match costs, in ns. Measured on this project's machine (2 cores of an AMD EPYC, Linux
// 6.18): 6,328 ns for 500 nft rules; rules of iptables-legacy took 0.84 of nft's time side by side, 3,000 rules of one
// source address each at raw prerouting.
const (
	nftRule      = 12.5
	iptablesRule = 10.5
)

// cost estimates what so many rules cost a packet that matches none, in ns.
func (b backend) cost(rules int) float64 {
	if b == iptables {
		return iptablesRule * float64(rules)
	}
	return nftRule * float64(rules)
}

// linearRules finds chains on the way of packets that come in which have too many rules.
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

// importRules is how the chain's rules become a policy, whose rules of one address each are folded into sets.
func (r *ruleset) importRules(c *chain) []string {
	six := strings.TrimPrefix(c.family, "ip") // "6" for IPv6
	switch {
	case c.backend == iptables:
		return imported("ip"+six+"tables-legacy-save", "ip"+six+"tables-save")
	case r.byIptables(c):
		return imported("ip"+six+"tables-save", "ip"+six+"tables-save")
	}
	return imported("nft -j list ruleset", "nft")
}

// imported is the commands that make a policy of a tool's output.
func imported(tool, format string) []string {
	return []string{tool + " | floodwall import " + format + " - --output imported.yaml", "floodwall check imported.yaml"}
}

// byIptables reports whether iptables-nft made the chain's table: it has the name of one of iptables, and a chain with the
// name of a built-in one.
func (r *ruleset) byIptables(c *chain) bool {
	if _, is := tablePriority[c.table]; !is || c.family != "ip" && c.family != "ip6" {
		return false
	}
	for name := range builtin {
		if r.byKey[chainKey{c.place, name}] != nil {
			return true
		}
	}
	return false
}

// path is what a packet meets that comes in for this host and matches nothing.
type path struct {
	version string // IPv4 or IPv6
	rules   int
	ns      float64
	longest *chain // the base chain with the most rules
}

// worstPath is that of the IP version which meets more.
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

// judgePath judges what packets for this host meet. listed is true when a finding names the list that is too long.
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
