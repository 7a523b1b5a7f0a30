// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// MaxConnections is the largest number of connections that a limit counts. When a connection begins, the kernel scans all connections of its prefix.
const MaxConnections = 65_535

// ruleOver parses the key over of a rule. Its value is either a list of rate limits or a limit of connections.
func (p place) ruleOver(to *Rule, v *node) {
	layers := layersOf(v)
	i := slices.IndexFunc(layers, countsConnections)
	switch {
	case i < 0:
		to.Over = p.overs("over", v)
	case len(layers) > 1:
		p.errorf(layers[i].Pos, "over lists connections beside another limit").Hint = "write a rule for each"
	default:
		to.Connections = p.connLimit(layers[i])
	}
}

// countsConnections reports whether a limit has the key connections, or a likely misspelling of it.
func countsConnections(n *node) bool {
	if n.Kind != yamltree.Mapping {
		return false
	}
	return slices.ContainsFunc(n.Pairs, func(e pair) bool { return wording.Nearest(e.Key, []string{"connections"}) != "" })
}

var connLimitKeys = []key[ConnLimit]{
	{name: "connections",
		value: into(word(numeral(1, MaxConnections, "^[1-9][0-9]{0,4}$"), readConnections), func(to *ConnLimit) *uint32 { return &to.Most }),
		doc:   "How many connections may be open at a time.", examples: `20`, must: "say how many, as in connections: 20"},
	{name: "per", value: custom(place.counted, listUpTo(2, perSchema)),
		doc: "Whose connections are counted together: of each prefix of sources or destinations, or each pair of them (not on iptables).", examples: `"from/32/64"`,
		must: "say whose connections are counted together: per: from for those of an address, per: to for those to one"},
	{name: "max", value: into(capacity, func(to *ConnLimit) *int { return &to.Max }),
		doc: "How many prefixes nftables holds at a time. While it holds as many, connections of other prefixes are not limited. iptables " +
			"holds any number. When left out: 131072.", examples: `100000`},
}

var connLimitSchema = define("connLimit", object(connLimitKeys).titled("number of connections"))

// counted parses the key per of a limit of connections. The key gives the prefixes for which connections are counted separately.
func (p place) counted(to *ConnLimit, v *node) {
	before := len(p.r.errs)
	p.prefixes(&to.From, &to.To, v)
	for _, e := range p.r.errs[before:] { // prefixes() adds hints about rates; replace them by hints about connections
		switch {
		case strings.Contains(e.Hint, "one rate for all"):
			e.Hint = "connections are counted by prefixes: per: to counts those to an address"
		case strings.Contains(e.Hint, "two limits"):
			e.Hint = "for prefixes of two lengths write two rules"
		}
	}
}

// ofRates are the keys of a rate limit that are not allowed in a limit of connections, with a hint for each.
var ofRates = []struct{ key, hint string }{
	{"rate", "write two rules: one with the rate, one with the connections"},
	{"burst", "remove it: as many connections may begin at once as there may be"},
	{"ban", "remove it: who opens a connection too many has proved no address; a rule with a rate can ban"},
}

// connLimit parses a limit of connections.
func (p place) connLimit(n *node) *ConnLimit {
	c := &ConnLimit{Pos: n.Pos}
	keys := connLimitKeys
	for _, other := range ofRates {
		refuse := func(p place, _ *ConnLimit, v *node) {
			p.errorf(v.Pos, "%s does not stand beside connections", other.key).Hint = other.hint
		}
		keys = append(keys[:len(keys):len(keys)], key[ConnLimit]{name: other.key, value: custom(refuse, &schema{})})
	}
	readKeys(p, "over", n, keys, c)
	return c
}

// readConnections parses a number of connections.
func readConnections(text string) (uint32, *flaw) {
	n, f := number(text, MaxConnections)
	if f == nil && n > 0 {
		return uint32(n), nil
	}
	g := want(fmt.Sprintf("a number from 1 to %d", MaxConnections), text)
	switch _, rate := readRate(text); {
	case f == nil:
		g.hintf("a rule without over matches every packet")
	case rate == nil:
		g.hintf("connections are counted while they last; a rate of packets is written rate: %s", text)
	default:
		g.hint = f.hint
	}
	return 0, g
}

// connecting reports keys of the rule n that cannot be combined with a number of connections.
func (p place) connecting(r *Rule, n *node) {
	if r.Connections == nil {
		return
	}
	excluded := n.Get("state")
	if slices.Contains(r.Not.State, packet.StateNew) {
		excluded = n.Get("not").Get("state")
	} else if r.Match.State == nil || slices.Contains(r.Match.State, packet.StateNew) {
		excluded = nil
	}
	if excluded != nil {
		p.errorf(excluded.Pos, "state excludes new, and over counts connections, which begin with a packet of that state").Hint =
			"remove state: beside connections it is new"
	}
	if then := n.Get("then"); then != nil && r.Then == Pass && !r.Observe {
		p.errorf(then.Pos, "a connection beyond over would pass").Hint = "write then: drop or then: reject; those within it go on to the next rules"
	}
}

// untrackedConnections reports rules that count connections in a policy that exempts all traffic from conntrack.
func (p place) untrackedConnections(to *Policy) {
	if !slices.Contains(to.Untracked, AllTraffic) {
		return
	}
	for _, r := range to.Rules {
		if r.Connections != nil {
			p.errorf(r.Connections.Pos, "rule %s: connections are counted by connection tracking, and untracked is all", wording.Quote(r.Name)).Hint =
				"name what is not tracked, as in untracked: [loopback, {proto: ospf}], or limit the rate of new connections: {proto: tcp, flags: syn, over: {rate: 20/s, per: from}}"
		}
	}
}
