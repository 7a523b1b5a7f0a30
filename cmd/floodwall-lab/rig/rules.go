// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

// rule is a rule that matches no packet of the bench's floods, and that all tools can express. Zero values match anything.
type rule struct {
	from, to    string // address or prefix
	proto       string
	first, last int // destination ports
	sport       int
	pass        bool
}

// nthRule returns the n-th of rules like those that people write over the years: addresses, networks and ports in turn, with mixed verdicts. Any two
// differ in more than one place, so no compiler can merge them into one rule.
func nthRule(n int) rule {
	r := rule{proto: "tcp", first: 1000 + n, last: 1000 + n, pass: n%3 == 0}
	hi, lo := n>>8, n&255
	switch n % 5 {
	case 0: // from a network to a port
		r.from = fmt.Sprintf("10.%d.%d.16/28", hi, lo)
	case 1: // from a host to a range of ports
		r.from, r.proto, r.last = fmt.Sprintf("10.%d.%d.7", hi, lo), "udp", r.first+3
	case 2: // from a network to one address
		r.from, r.to = fmt.Sprintf("172.%d.%d.0/24", 16+hi, lo), fmt.Sprintf("10.0.0.%d", 3+n%250)
	case 3: // from anywhere to a port
		r.sport = 20000 + n
	case 4: // from anywhere to a port of one address
		r.to, r.proto = fmt.Sprintf("198.18.%d.%d", hi, lo), "udp"
	}
	return r
}

// RuleHosts returns the single sources that n rules name, for ports of UDP.
func RuleHosts(n int) (hosts []netip.Addr) {
	for i := range n {
		if from, err := netip.ParseAddr(nthRule(i).from); err == nil {
			hosts = append(hosts, from)
		}
	}
	return hosts
}

// PolicyRules returns n rules as part of a policy.
func PolicyRules(n int) string {
	var b strings.Builder
	if n > 0 {
		b.WriteString("rules:\n")
	}
	for i := range n {
		fmt.Fprintf(&b, "  - {name: r%d, %s}\n", i, nthRule(i).policy())
	}
	return b.String()
}

// policy returns the rule's keys in a policy.
func (r rule) policy() string {
	var keys []string
	add := func(key, value string) {
		if value != "" {
			keys = append(keys, key+": "+value)
		}
	}
	add("from", r.from)
	add("to", r.to)
	add("proto", r.proto)
	add("port", r.ports("-"))
	if r.sport > 0 {
		add("sport", fmt.Sprint(r.sport))
	}
	add("then", report.Choice(r.pass, "pass", "drop"))
	return strings.Join(keys, ", ")
}

// nft returns the rule in nft's language.
func (r rule) nft() string {
	var b strings.Builder
	if r.from != "" {
		fmt.Fprintf(&b, "ip saddr %s ", r.from)
	}
	if r.to != "" {
		fmt.Fprintf(&b, "ip daddr %s ", r.to)
	}
	if r.sport > 0 {
		fmt.Fprintf(&b, "%s sport %d ", r.proto, r.sport)
	}
	fmt.Fprintf(&b, "%s dport %s ", r.proto, r.ports("-"))
	return b.String() + report.Choice(r.pass, "accept", "drop")
}

// iptables returns the rule's options for iptables.
func (r rule) iptables() string {
	var b strings.Builder
	if r.from != "" {
		fmt.Fprintf(&b, "-s %s ", r.from)
	}
	if r.to != "" {
		fmt.Fprintf(&b, "-d %s ", r.to)
	}
	fmt.Fprintf(&b, "-p %s ", r.proto)
	if r.sport > 0 {
		fmt.Fprintf(&b, "--sport %d ", r.sport)
	}
	return fmt.Sprintf("%s--dport %s -j %s", b.String(), r.ports(":"), report.Choice(r.pass, "ACCEPT", "DROP"))
}

// ports returns the destination ports. In a range, the text to is written between first and last.
func (r rule) ports(to string) string {
	if r.first == r.last {
		return fmt.Sprint(r.first)
	}
	return fmt.Sprintf("%d%s%d", r.first, to, r.last)
}

// RulesPolicy returns a policy of n rules that do not match; it then drops all packets. It has no devices.
func RulesPolicy(n int) string { return "default: drop\n" + PolicyRules(n) }

// RuleCounts are the numbers of rules. Each has two goals for Floodwall without checks, as shares of the smallest program's rate: for sources that no
// rule names, and for sources that rules name; 0: no goal.
var RuleCounts = []struct {
	Rules            int
	Unlisted, Listed float64
}{{0, 0.95, 0}, {20, 0.95, 0}, {500, 0.92, 0.80}, {10_000, 0.92, 0.75}}

// IptablesRules returns n rules that do not match, for iptables-restore.
func IptablesRules(chain string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "-A %s %s\n", chain, nthRule(i).iptables())
	}
	return b.String()
}

// IptablesScript returns input for iptables-restore: n rules that do not match, and a drop.
func IptablesScript(table, chain string, n int) string {
	return fmt.Sprintf("*%s\n%s-A %s -j DROP\nCOMMIT\n", table, IptablesRules(chain, n), chain)
}

// NftRules returns n rules that do not match, for a chain of nft.
func NftRules(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(nthRule(i).nft() + "\n")
	}
	return b.String()
}

// MostStrings is the largest number of strings of a policy.
const MostStrings = 64

// Texts returns n texts to search for, none of which is in any packet of the bench. The first is the article's text. The others are random words
// without common parts that an algorithm could use.
func Texts(n int) []string {
	words := []string{"evil.example"}
	r := rand.New(rand.NewPCG(Seed, 64))
	for len(words) < n {
		words = append(words, RandomText(r, 6+r.IntN(11))+".example")
	}
	return words[:n]
}

// RandomText returns n random lowercase letters.
func RandomText(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return string(b)
}

// StringRules returns rules of iptables that drop packets to port 53 with any of these texts.
func StringRules(algo string, texts []string) string {
	var b strings.Builder
	for _, text := range texts {
		fmt.Fprintf(&b, "-A PREROUTING -p udp --dport 53 -m string --algo %s --string %s -j DROP\n", algo, text)
	}
	return b.String()
}

// StringPolicy is like StringRules, but returns a rule of a policy.
func StringPolicy(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = strconv.Quote(text)
	}
	return "  - {name: text, proto: udp, port: 53, payload: {contains: [" + strings.Join(quoted, ", ") + "]}, then: drop}\n"
}
