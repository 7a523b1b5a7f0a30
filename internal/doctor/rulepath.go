// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// mostRoutes is the largest number of paths to one rule that routesOf examines.
const mostRoutes = 64

// within returns a key for a chain in the rule's table.
func (r savedRule) within(chain string) string {
	return fmt.Sprint(r.Iptables, r.Family, " ", r.Table, " ", chain)
}

// routesOf returns the rules for which wanted returns true, once for each path on which packets reach the rule. Each result has the hook at which the
// path starts and the rules on the path. Unreachable rules are left out. `all` is false if a map whose elements are not listed may lead to a wanted
// rule.
func routesOf(rules []savedRule, wanted func(savedRule) bool) (routes []savedRule, all bool) {
	jumps, maps := map[string][]savedRule{}, map[string]bool{}
	for _, r := range rules {
		for _, to := range r.LeadsTo() {
			jumps[r.within(to)] = append(jumps[r.within(to)], r)
		}
		if strings.Contains(r.Text, "vmap @") {
			maps[r.within("")] = true
		}
	}
	var back func(r savedRule, depth int) []savedRule
	back = func(r savedRule, depth int) (list []savedRule) {
		if r.Hook != "" {
			return []savedRule{r}
		}
		if depth > 16 { // deeper than the kernel allows chains to nest (NFT_JUMP_STACK_SIZE)
			return nil
		}
		for _, j := range jumps[r.within(r.Chain)] {
			for _, way := range back(j, depth+1) {
				if len(list) < mostRoutes {
					step := r
					step.Hook, step.via = way.Hook, strings.TrimSpace(way.via+" "+way.Text)
					list = append(list, step)
				}
			}
		}
		return list
	}
	all = true
	for _, r := range rules {
		if !wanted(r) {
			continue
		}
		ways := back(r, 0)
		if ways == nil && maps[r.within("")] {
			all = false
		}
		routes = append(routes, ways...)
	}
	return routes, all
}

// whole returns the rule with its text extended: the texts of the rules on its path precede its own text.
func (r savedRule) whole() netfilter.Listed {
	all := r.Listed
	all.Text = strings.TrimSpace(r.via + " " + r.Text)
	return all
}

// from describes the rules on the path to the rule, as evidence. It returns "" if there are none.
func (r savedRule) from() string {
	if r.via == "" {
		return ""
	}
	return fmt.Sprintf(" (reached by %q)", r.via)
}

// tool returns the iptables command for the rule's family.
func (r savedRule) tool() string {
	if r.Family == "ip6" {
		return "ip6tables"
	}
	return "iptables"
}

// meets reports whether a packet that one rule matches, or its reply, can match the other rule: both rules share a family and a protocol.
func (r savedRule) meets(other savedRule) bool {
	single := func(f string) bool { return f == "ip" || f == "ip6" }
	families := r.Family == other.Family || !single(r.Family) || !single(other.Family)
	return families && (r.proto() == other.proto() || r.proto() == "" || other.proto() == "")
}

// protocol is tcp, udp, or "" for several protocols.
type protocol string

const (
	tcp protocol = "tcp"
	udp protocol = "udp"
)

// proto returns the protocol that a rule matches.
func (r savedRule) proto() protocol {
	return map[uint8]protocol{unix.IPPROTO_TCP: tcp, unix.IPPROTO_UDP: udp}[r.whole().Proto()]
}

func (p protocol) iptables() string {
	if p == "" {
		return ""
	}
	return " -p " + string(p)
}

// nft returns a match of the protocol and of ports in nft's syntax, followed by a space.
func (p protocol) nft(side string, ports portSpans) string {
	switch {
	case ports.all() && p == "":
		return ""
	case ports.all():
		return "meta l4proto " + string(p) + " "
	case p == "":
		return "meta l4proto { tcp, udp } th " + side + " " + ports.nft() + " "
	}
	return string(p) + " " + side + " " + ports.nft() + " "
}

// portSpans are the ports of a rule.
type portSpans []ranges.Range

// anyPort is the range of all ports, for a rule that names none.
var anyPort = ranges.Span(0, 65535)

func (s portSpans) all() bool { return slices.Contains(s, anyPort) }

// without returns the ports that are not in others.
func (s portSpans) without(others portSpans) portSpans {
	const size = 1 << 16
	return ranges.Common(s, ranges.Complement(ranges.Normalize(others), size), size)
}

// words formats the ports. sign is the text between the ends of a range, and between is the text between ranges.
func (s portSpans) words(sign, between string) string {
	var words []string
	for _, p := range s {
		word := fmt.Sprint(p.First)
		if p.Last > p.First {
			word += sign + fmt.Sprint(p.Last)
		}
		words = append(words, word)
	}
	return strings.Join(words, between)
}

// iptables returns a match of source (s) or destination (d) ports in iptables' syntax, preceded by a space.
func (s portSpans) iptables(side string) string {
	switch {
	case s.all():
		return ""
	case len(s) > 1:
		return " -m multiport --" + side + "ports " + s.words(":", ",")
	}
	return " --" + side + "port " + s.words(":", ",")
}

func (s portSpans) nft() string {
	if len(s) > 1 {
		return "{ " + s.words("-", ", ") + " }"
	}
	return s.words("-", ", ")
}

// ports returns the side ("s" or "d") and the ports that a rule matches. If the rule names none, they come from the last rule on its path that does.
// If none does, ports returns "" and anyPort. If the ports are not written as numbers, it returns the side and anyPort.
func (r savedRule) ports() (side string, ports portSpans) {
	side, ports = r.whole().Ports("sd")
	if ports == nil {
		ports = portSpans{anyPort}
	}
	return side, ports
}
