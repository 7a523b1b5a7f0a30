// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// policy returns a random policy. Its rules match the values that attempts vary.
func (g *generator) policy() string {
	var b strings.Builder
	fmt.Fprintf(&b, "devices: [eth0]\ndefault: %s\nreplies: drop\nchecks: %s\n", pick(g, "pass", "drop"), g.checks())
	if g.oneIn(5) {
		fmt.Fprintf(&b, "placement: %s\n", pick(g, plan.StageRaw, plan.StageFilter))
	}
	b.WriteString("rules:\n")
	for i := range 1 + g.IntN(5) {
		not := ""
		if g.oneIn(4) {
			not = "not: {" + strings.TrimSuffix(g.keys(1), ", ") + "}, "
		}
		fmt.Fprintf(&b, "  - {name: r%d, %s%sthen: %s}\n", i, g.keys(min(1, 1-len(not))), not, pick(g, "pass", "pass", "drop", "drop", "drop", "reject"))
	}
	if n := g.IntN(3); n > 0 {
		b.WriteString("services:\n")
		first := g.IntN(len(ports))
		for i := range n {
			from := ""
			if g.oneIn(2) {
				from = ", from: " + g.network()
			}
			port := g.port()
			if g.oneIn(2) {
				port = fmt.Sprintf("tcp/%d, syn: {mode: host, when: always}", ports[(first+i)%len(ports)]) // each port is protected at most once
			}
			fmt.Fprintf(&b, "  - {name: s%d, port: %s%s}\n", i, port, from)
		}
	}
	return b.String()
}

// checks returns a random profile of checks, and random settings of single checks. In three of five cases the profile is off.
func (g *generator) checks() string {
	text := "{profile: " + pick(g, "off", "off", "off", "standard", "strict")
	for c := range packet.NumChecks {
		if g.oneIn(10) && c != packet.OwnSource {
			text += fmt.Sprintf(", %s: %s", c, pick(g, "on", "off", "off", "observe"))
		}
	}
	return text + "}"
}

// keys returns at least the given number of random keys of a rule, with a comma after each.
func (g *generator) keys(least int) (b string) {
	number := func(values ...int) string {
		n := pick(g, values...)
		if g.oneIn(2) {
			return fmt.Sprint(n)
		}
		return fmt.Sprintf("%d-%d", n, n+g.IntN(values[len(values)-1]-n+1))
	}
	all := []struct {
		seldom int
		key    string
		one    func() string
	}{
		{3, "port", g.port},
		{4, "proto", func() string { return pick(g, "tcp", "udp", "gre", "132", "udplite") }},
		{5, "from", g.network},
		{8, "to", func() string { return pick(g, "local", "192.0.2.1", `"2001:db8:ffff::1"`) }},
		{12, "sport", func() string { return pick(g, "tcp/", "udp/", "") + number(53, 1024, 40000, 65535) }},
		{10, "flags", func() string { return pick(g, "syn", "ack", `"syn/syn,ack"`, `"0/syn"`) }},
		{14, "family", func() string { return pick(g, "ipv4", "ipv6") }},
		{14, "length", func() string { return number(0, 40, 60, 100, 576, 1500) }},
		{14, "ttl", func() string { return number(1, 5, 64, 255) }},
		{20, "dscp", func() string { return number(0, 46, 63) }},
		{14, "fragment", func() string { return pick(g, "none", "first", "later") }},
		{20, "vlan", func() string { return pick(g, "none", "0", "1-4094") }},
	}
	n := 0
	for _, i := range g.Perm(len(all)) {
		if k := all[i]; n < least && k.seldom < 9 || g.oneIn(k.seldom) {
			b += fmt.Sprintf("%s: %s, ", k.key, k.one())
			n++
		}
	}
	return b
}

func (g *generator) network() string {
	n := g.IntN(networks)
	return pick(g, fmt.Sprintf("10.%d.0.0/16", n), fmt.Sprintf(`"2001:db8:%x::/48"`, n), fmt.Sprintf(`[10.0.0.0/14, "2001:db8:%x::/47"]`, n&^1))
}

func (g *generator) port() string {
	p := pick(g, ports...)
	return pick(g, "tcp/", "udp/", "") + pick(g, fmt.Sprint(p), fmt.Sprintf("%d-%d", p, int(p)+g.IntN(3000)))
}
