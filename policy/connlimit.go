package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// MaxConnections is the largest number of connections that a limit counts: the kernel goes through those of a prefix when one begins.
const MaxConnections = 65_535

// ruleOver reads what a rule matches beyond: rates, or a number of connections.
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

// countsConnections reports whether a limit has the key connections, or one that is likely meant by it.
func countsConnections(n *node) bool {
	if n.Kind != yamltree.Mapping {
		return false
	}
	return slices.ContainsFunc(n.Pairs, func(e pair) bool { return wording.Nearest(e.Key, []string{"connections"}) != "" })
}

var connLimitKeys = []key[ConnLimit]{
	{"connections", func(p place, to *ConnLimit, v *node) {
		to.Most = scalarOf(p, "connections", v, readConnections)
	}},
	{"per", place.counted},
	{"max", func(p place, to *ConnLimit, v *node) { to.Max = scalarOf(p, "max", v, capacity) }},
}

// counted reads by what connections are counted.
func (p place) counted(to *ConnLimit, v *node) {
	before := len(p.r.errs)
	p.prefixes(&to.From, &to.To, v)
	for _, e := range p.r.errs[before:] { // the hints are for rates
		switch {
		case strings.Contains(e.Hint, "one rate for all"):
			e.Hint = "connections are counted by prefixes: per: to counts those to an address"
		case strings.Contains(e.Hint, "two limits"):
			e.Hint = "for prefixes of two lengths write two rules"
		}
	}
}

// ofRates are keys of a rate that say nothing of a number of connections, with what to do instead.
var ofRates = []struct{ key, hint string }{
	{"rate", "write two rules: one with the rate, one with the connections"},
	{"burst", "remove it: as many connections may begin at once as there may be"},
	{"ban", "remove it: who opens a connection too many has proved no address; a rule with a rate can ban"},
}

// connLimit reads a limit of connections.
func (p place) connLimit(n *node) *ConnLimit {
	c := &ConnLimit{Pos: n.Pos}
	keys := connLimitKeys
	for _, other := range ofRates {
		keys = append(keys[:len(keys):len(keys)], key[ConnLimit]{other.key, func(p place, _ *ConnLimit, v *node) {
			p.errorf(v.Pos, "%s does not stand beside connections", other.key).Hint = other.hint
		}})
	}
	seen := readKeys(p, "over", n, keys, c)
	p.require(n, seen, "connections", "say how many, as in connections: 20")
	p.require(n, seen, "per", "say whose connections are counted together: per: from for those of an address, per: to for those to one")
	return c
}

// readConnections reads a number of connections.
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

// connecting reports what of a rule, which n is, cannot be asked beside a number of connections.
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

// untrackedConnections reports rules that count connections where nothing is tracked.
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
