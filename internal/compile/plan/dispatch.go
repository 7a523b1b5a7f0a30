// SPDX-License-Identifier: Apache-2.0

// This file arranges a list of rules so that a packet is tested against few of them. Adjacent rules that all test the same field become a Lookup. The
// value of that field in a packet selects a short list of the rules that can match the packet. The rules keep their order and all their tests. A
// lookup may select rules that do not match, but it never omits one that does. So the first rule that matches a packet remains the same.

package plan

import (
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Rule is an element of the list that Arrange takes.
type Rule struct {
	Rule  *ir.Rule
	Lines int  // the number of tests for a packet that does not match; 0: the rule cannot match any packet that reaches this list
	Fixed bool // Arrange must not put the rule into a lookup
}

// Node is an element of an arranged list: a rule, or a lookup that replaces several rules.
type Node struct {
	Rule   int // index of the rule in the list that was passed to Arrange
	Lookup *Lookup
}

// Lookup selects one list of rules, or none, by the value of a key. A packet that the selected list does not decide continues after the lookup.
type Lookup struct {
	Key   Key
	Known int     // the IP protocol that all packets have here, -1 if unknown; the meaning of port keys depends on it
	Maps  [2]*Map // one for each address family if the key is an address, otherwise only the first; nil: no value selects a list
	Lists [][]Node
	Cost  int // the estimated cost, in units of a rule that a packet does not match
}

// Asked maps each rule that is part of a lookup, by its index, to a cost in rules. The first rule of a lookup has the cost of the lookup. The others
// have 0.
func Asked(nodes []Node) map[int]int {
	asked := map[int]int{}
	for _, n := range nodes {
		if n.Lookup == nil {
			continue
		}
		first := n.Lookup.mark(asked)
		asked[first] = n.Lookup.Cost
	}
	return asked
}

// mark sets the cost of each rule of a lookup to 0, and returns the first rule.
func (l *Lookup) mark(asked map[int]int) (first int) {
	first = math.MaxInt
	for _, list := range l.Lists {
		for _, n := range list {
			at := n.Rule
			if n.Lookup != nil {
				at = n.Lookup.mark(asked)
			}
			asked[at] = 0
			first = min(first, at)
		}
	}
	return first
}

// The estimated costs of lookups, in units of a rule that a packet does not match (measured on nftables: docs/design/netfilter.md).
const (
	hashCost     = 2
	joinedCost   = 3 // of a lookup by a protocol and a port
	intervalCost = 6
	otherFamily  = 1
)

// A lookup must save a packet at least leastSpared rules. Neighboring values share a list as long as the list has at most listRules rules. A rule may
// be in several lists. The lists together may have up to mostCopies times as many rules as the lookup replaces.
const (
	leastSpared = 3
	listRules   = 4
	mostCopies  = 2
)

// Arrange arranges a list of rules so that a packet is tested against few of them.
func Arrange(sets []ir.Set, rules []Rule) []Node {
	a := &arranger{sets: sets, rules: rules}
	for k := range a.values {
		a.values[k] = make([]keyValues, len(rules))
	}
	var all []int
	for i, r := range rules {
		if r.Lines == 0 {
			continue
		}
		all = append(all, i)
		for k := range numKeys {
			v := &a.values[k][i]
			v.of, v.asks = valuesOf(sets, r.Rule, k)
			v.asks = v.asks && !r.Fixed
		}
	}
	nodes, _ := a.list(all, place{proto: -1})
	return nodes
}

// arranger is the state of Arrange.
type arranger struct {
	sets   []ir.Set
	rules  []Rule
	values [numKeys][]keyValues // by rule
}

// keyValues are the values of a key for which a rule tests.
type keyValues struct {
	of   [2][]span
	asks bool
}

// place has the known properties of the packets that reach a list.
type place struct {
	proto int // -1: not known
	used  [numKeys]bool
}

// list arranges rules. It also estimates their cost for a packet, in rules.
func (a *arranger) list(rules []int, p place) (nodes []Node, cost int) {
	for len(rules) > 0 {
		best, spared, length, tried := a.best(rules, p)
		if best != nil {
			nodes = append(nodes, Node{Lookup: best})
			cost += a.lines(rules[:length]) - spared
			rules = rules[length:]
			continue
		}
		// If a long run of rules cannot become a lookup, a run that begins a little later is unlikely to become one.
		alone := min(len(rules), 1+tried/8)
		for _, r := range rules[:alone] {
			nodes = append(nodes, Node{Rule: r})
		}
		cost += a.lines(rules[:alone])
		rules = rules[alone:]
	}
	return nodes, cost
}

// best returns the lookup that saves the most rules, among those that begin with the first rule. spared is the number of saved rules. length is the
// number of rules that the lookup replaces. tried is the largest number of rules for which a lookup was tried.
func (a *arranger) best(rules []int, p place) (best *Lookup, spared, length, tried int) {
	spared = leastSpared - 1
	for k := range numKeys {
		n := a.run(rules, k, p)
		lines := a.lines(rules[:n])
		if lines <= spared {
			continue
		}
		tried = max(tried, n)
		if l, cost := a.lookup(rules[:n], k, p); l != nil && lines-cost > spared {
			best, spared, length = l, lines-cost, n
		}
	}
	return best, spared, length, tried
}

// run returns the number of rules at the start of the list that all test for values of a key.
func (a *arranger) run(rules []int, k Key, p place) int {
	known := p.proto == packet.ProtoTCP || p.proto == packet.ProtoUDP
	if p.used[k] || k.isPort() && p.proto >= 0 && !known || k == Proto && p.proto >= 0 {
		return 0
	}
	n := slices.IndexFunc(rules, func(r int) bool { return !a.values[k][r].asks })
	if n < 0 {
		return len(rules)
	}
	return n
}

func (a *arranger) lines(rules []int) (n int) {
	for _, r := range rules {
		n += a.rules[r].Lines
	}
	return n
}

// lookup creates the lookup of a key for rules. It also estimates the lookup's cost for a packet, in rules. This is the cost of the lookup itself and
// half the cost of the most expensive list, because many packets have a value that selects no list.
func (a *arranger) lookup(rules []int, k Key, p place) (l *Lookup, cost int) {
	l = &Lookup{Key: k, Known: p.proto}
	lists := newLists()
	for family := range l.Maps {
		if family > 0 && !k.IsAddress() {
			break
		}
		parts, ok := a.parts(rules, k, p, family)
		if !ok {
			return nil, 0
		}
		if l.Maps[family] = newMap(parts, lists, k, family); l.Maps[family] != nil {
			cost = max(cost, l.Maps[family].cost(l))
		}
	}
	if k.IsAddress() {
		cost += otherFamily
	}
	switch {
	case l.Maps == [2]*Map{}:
		return nil, 0
	case l.Joined() && l.Maps[0].Intervals: // intervals over two fields take microseconds per packet
		return nil, 0
	}
	copies, longest := 0, 0 // the rules in all lists, and the cost of the most expensive list
	for i, list := range lists.rules {
		copies += a.lines(list)
		inner := p
		inner.used[k] = true
		if k == Proto {
			inner.proto = lists.proto[i]
		}
		nodes, each := a.list(list, inner)
		l.Lists = append(l.Lists, nodes)
		longest = max(longest, each)
	}
	if copies > mostCopies*a.lines(rules)+listRules {
		return nil, 0
	}
	l.Cost = cost + longest/2
	return l, l.Cost
}

// Joined reports whether a lookup by port must also test the protocol.
func (l *Lookup) Joined() bool {
	if l.Known >= 0 || !l.Key.isPort() {
		return false
	}
	_, one := l.OnlyProto()
	return !one
}

// OnlyProto returns the protocol of all ports for which a lookup selects a list. one is false if there are two protocols.
func (l *Lookup) OnlyProto() (proto uint32, one bool) {
	e := l.Maps[0].Elements
	switch {
	case e[len(e)-1].Last.Number() < packet.PortUDP:
		return packet.ProtoTCP, true
	case e[0].First.Number() >= packet.PortUDP:
		return packet.ProtoUDP, true
	}
	return 0, false
}
