package plan

import (
	"math"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Rule is a rule of a list.
type Rule struct {
	Rule  *ir.Rule
	Lines int  // how many tests it is for a packet that it does not match; 0: it cannot match in this list
	Fixed bool // it stays out of lookups
}

// Node is a place in an arranged list: a rule, or a lookup that stands for several.
type Node struct {
	Rule   int // its index in the list that was arranged
	Lookup *Lookup
}

// Lookup selects by a key one of some lists of rules, or none. A packet that the selected list does not decide goes on
// behind the lookup.
type Lookup struct {
	Key   Key
	Known int     // the protocol that packets are known to have, -1 where there is none; it matters to ports
	Maps  [2]*Map // of each family where the key is an address, else only the first; nil: it selects nothing
	Lists [][]Node
	Cost  int // an estimate: as many rules that a packet does not match cost it as much
}

// Asked are the rules of an arranged list that stand in lookups, with the number of rules for which a packet is asked instead:
// the first rule of a lookup has what the lookup costs, the others have 0.
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

// mark enters the rules of a lookup with 0, and returns the first of them.
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

// The estimated costs of lookups, in rules that a packet does not match (measured on nftables: docs/design/netfilter.md).
const (
	hashCost     = 2
	joinedCost   = 3 // of a protocol and a port
	intervalCost = 6
	otherFamily  = 1
)

// A lookup is made where it spares a packet some rules, of lists of a few rules where that is possible. The lists
// may have more rules together than there are, as several can have the same rule, by a factor.
const (
	leastSpared = 3
	listRules   = 4
	mostCopies  = 2
)

// Arrange arranges a list of rules.
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

// keyValues are what a rule asks of a key.
type keyValues struct {
	of   [2][]span
	asks bool
}

// place is what is known of the packets that come to a list.
type place struct {
	proto int // -1: not known
	used  [numKeys]bool
}

// list arranges rules, and estimates what they cost a packet.
func (a *arranger) list(rules []int, p place) (nodes []Node, cost int) {
	for len(rules) > 0 {
		best, spared, length, tried := a.best(rules, p)
		if best != nil {
			nodes = append(nodes, Node{Lookup: best})
			cost += a.lines(rules[:length]) - spared
			rules = rules[length:]
			continue
		}
		// Where a long run of rules cannot be looked up, one that begins a little later hardly can.
		alone := min(len(rules), 1+tried/8)
		for _, r := range rules[:alone] {
			nodes = append(nodes, Node{Rule: r})
		}
		cost += a.lines(rules[:alone])
		rules = rules[alone:]
	}
	return nodes, cost
}

// best is the lookup that spares the most rules, of those that begin at the first rule, with the number of rules that it stands
// for; tried is the largest such number.
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

// run is how many of the first rules ask for a key.
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

// lookup makes the lookup of a key for rules, and estimates what it costs a packet, in rules: the lookup itself and, as many
// packets have a value that selects nothing, half of the longest list.
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
	case l.Joined() && l.Maps[0].Intervals: // of two fields at once: a packet takes microseconds
		return nil, 0
	}
	copies, longest := 0, 0 // of rules, in all lists; and the cost of the dearest list
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

// Joined reports whether a lookup by ports has to look at the protocol as well.
func (l *Lookup) Joined() bool {
	if l.Known >= 0 || !l.Key.isPort() {
		return false
	}
	_, one := l.OnlyProto()
	return !one
}

// OnlyProto is the protocol of all ports that a lookup selects something for, if it is one.
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
