// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// netPlace is a rule of a table.
type netPlace struct {
	table int
	chain string
	rule  int
}

func (p netPlace) of(tables []*nftable.Table) *nftable.Expressions {
	return &tables[p.table].Chain(p.chain).Rules[p.rule].Expressions
}

// netMutant is a copy of the tables with one mistake.
type netMutant struct {
	class, text string
	at          netPlace
	tables      []*nftable.Table
}

// Mutants makes n mistakes in the tables, one at a time, and proves or refutes each. gaveUp contains the mistakes that could be neither proved nor
// refuted.
func (n *Netfilter) Mutants(ctx context.Context, l smt.Limits, count int, r *rand.Rand) (counts map[string]*MutantCounts, gaveUp []string, err error) {
	reached, err := n.reached()
	if err != nil {
		return nil, nil, err
	}
	counts, _, gaveUp, err = makeMutants(ctx, count, func() (tried, bool) {
		m, ok := n.mutant(r, reached)
		return tried{m.class, m.text, func() (smt.Answer, string) { return n.refute(ctx, l, m, reached[m.at]) }}, ok
	})
	return counts, gaveUp, err
}

// reached returns, for each rule, the kinds of packets that reach it.
func (n *Netfilter) reached() (map[netPlace][]kind, error) {
	out := map[netPlace][]kind{}
	for _, k := range netKinds() {
		q, err := n.query(k, false)
		if err != nil {
			return nil, err
		}
		for at := range q.visited {
			out[at] = append(out[at], k)
		}
	}
	return out, nil
}

// refute searches for a packet that a mutant decides or counts wrongly.
func (n *Netfilter) refute(ctx context.Context, l smt.Limits, m netMutant, list []kind) (smt.Answer, string) {
	world := *n.world
	world.tables, world.spans = m.tables, map[spansKey][]span{}
	changed := &Netfilter{n.Program, &world}
	var compared int
	if r := changed.sets(&compared); r.Answer != smt.Unsatisfiable {
		return r.Answer, r.Why
	}
	answer, why := smt.Unsatisfiable, ""
	for _, k := range list {
		switch r := changed.Kind(ctx, k, l); r.Answer {
		case smt.Satisfiable:
			return r.Answer, r.Why
		case smt.Unknown:
			answer, why = r.Answer, r.Why
		}
	}
	if answer == smt.Unsatisfiable {
		r := changed.Others(ctx, l)
		answer, why = r.Answer, r.Why
	}
	return answer, why
}

// mutant returns a random mutant of a rule that at least one packet reaches.
func (n *Netfilter) mutant(r *rand.Rand, reached map[netPlace][]kind) (netMutant, bool) {
	places := slices.SortedFunc(maps.Keys(reached), func(a, b netPlace) int {
		if a.table != b.table {
			return a.table - b.table
		}
		if c := strings.Compare(a.chain, b.chain); c != 0 {
			return c
		}
		return a.rule - b.rule
	})
	for range 100 {
		at := places[r.IntN(len(places))]
		if list := n.mutantsOf(at); len(list) > 0 {
			return list[r.IntN(len(list))], true
		}
	}
	return netMutant{}, false
}

// inverses maps comparisons to their opposites. neighbours maps comparisons to comparisons that differ for one value.
var (
	inverses = map[uint32]uint32{
		unix.NFT_CMP_EQ: unix.NFT_CMP_NEQ, unix.NFT_CMP_NEQ: unix.NFT_CMP_EQ, unix.NFT_CMP_LT: unix.NFT_CMP_GTE, unix.NFT_CMP_GTE: unix.NFT_CMP_LT,
		unix.NFT_CMP_LTE: unix.NFT_CMP_GT, unix.NFT_CMP_GT: unix.NFT_CMP_LTE,
	}
	neighbours = map[uint32]uint32{
		unix.NFT_CMP_LT: unix.NFT_CMP_LTE, unix.NFT_CMP_LTE: unix.NFT_CMP_LT, unix.NFT_CMP_GT: unix.NFT_CMP_GTE, unix.NFT_CMP_GTE: unix.NFT_CMP_GT,
		unix.NFT_CMP_EQ: unix.NFT_CMP_LTE,
	}
)

// netMutants collects the mutants of a rule.
type netMutants struct {
	*Netfilter
	at   netPlace
	list []netMutant
}

// mutantsOf returns all mutants of a rule.
func (n *Netfilter) mutantsOf(at netPlace) []netMutant {
	m := &netMutants{Netfilter: n, at: at}
	m.change("rule left out", "it", func(r *nftable.Expressions) { *r = nil })
	for i, e := range *at.of(n.world.tables) {
		m.expression(i, e)
	}
	return m.list
}

// change adds a mutant of the rule.
func (m *netMutants) change(class, text string, change func(*nftable.Expressions)) {
	m.table(class, text, func(tables []*nftable.Table) { change(m.at.of(tables)) })
}

// table adds a mutant of the table.
func (m *netMutants) table(class, text string, change func([]*nftable.Table)) {
	var tables []*nftable.Table
	for _, t := range m.world.tables {
		tables = append(tables, t.Clone())
	}
	change(tables)
	m.list = append(m.list, netMutant{class, fmt.Sprintf("chain %s, rule %d: %s", m.at.chain, m.at.rule+1, text), m.at, tables})
}

// instead adds a mutant that has another expression at an index.
func (m *netMutants) instead(class string, i int, e nftable.Expression) {
	m.change(class, fmt.Sprintf("%+v instead of %+v", e, (*m.at.of(m.world.tables))[i]), func(r *nftable.Expressions) { (*r)[i] = e })
}

// without adds a mutant that lacks a test.
func (m *netMutants) without(i int) {
	m.change("test left out", fmt.Sprintf("without %+v", (*m.at.of(m.world.tables))[i]), func(r *nftable.Expressions) { *r = slices.Delete(*r, i, i+1) })
}

func (m *netMutants) expression(i int, e nftable.Expression) {
	switch e := e.(type) {
	case nftable.Cmp:
		m.without(i)
		for _, next := range [][]byte{successor(e.Value), predecessor(e.Value)} {
			if next != nil {
				m.instead("bound, by one", i, nftable.Cmp{From: e.From, Op: e.Op, Value: next})
			}
		}
		m.instead("comparison inverted, or its neighbour", i, nftable.Cmp{From: e.From, Op: inverses[e.Op], Value: e.Value})
		if op, ok := neighbours[e.Op]; ok {
			m.instead("comparison inverted, or its neighbour", i, nftable.Cmp{From: e.From, Op: op, Value: e.Value})
		}
	case nftable.Range:
		m.without(i)
		m.instead("comparison inverted, or its neighbour", i, nftable.Range{From: e.From, Outside: !e.Outside, Min: e.Min, Max: e.Max})
		m.instead("bound, by one", i, nftable.Range{From: e.From, Outside: e.Outside, Min: e.Min, Max: predecessor(e.Max)})
	case nftable.Lookup:
		if !e.Map {
			m.without(i)
			m.instead("comparison inverted, or its neighbour", i, nftable.Lookup{Set: e.Set, From: e.From, Not: !e.Not})
		}
		m.elements(e.Set)
	case nftable.Bitwise:
		for at, mask := range e.Mask {
			changed := e
			changed.Mask = slices.Clone(e.Mask)
			changed.Mask[at] = mask ^ 1<<((at+i)%8)
			m.instead("mask", i, changed)
		}
		m.instead("mask", i, nftable.Bitwise{From: e.From, To: e.To, Mask: slices.Repeat([]byte{0xff}, len(e.Mask)), Xor: e.Xor})
	case nftable.Payload:
		for _, by := range []int{-1, 1} {
			if e.Offset+by >= 0 {
				changed := e
				changed.Offset += by
				m.instead("offset", i, changed)
			}
		}
	case nftable.Immediate:
		m.verdict(e.Verdict, func(class string, v nftable.Verdict) { m.instead(class, i, nftable.Immediate{Verdict: v}) })
	case nftable.Reject:
		m.instead("verdict", i, nftable.Immediate{Verdict: nftable.Verdict{Code: nftable.Drop}})
		m.instead("verdict", i, nftable.Immediate{Verdict: nftable.Verdict{Code: nftable.Accept}})
	case nftable.Objref:
		class := map[uint32]string{unix.NFT_OBJECT_COUNTER: "counter", unix.NFT_OBJECT_LIMIT: "limit"}[e.Type]
		m.change(class, "without "+e.Name, func(r *nftable.Expressions) { *r = slices.Delete(*r, i, i+1) })
		objects := m.world.tables[m.at.table].Objects
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			if name != e.Name && objects[name].Type == e.Type {
				m.instead(class, i, nftable.Objref{Type: e.Type, Name: name})
			}
		}
	case nftable.Dynset:
		m.change("limit", "without "+e.Set, func(r *nftable.Expressions) { *r = slices.Delete(*r, i, i+1) })
		if l, ok := e.Expression.(nftable.Limit); ok {
			l.Rate++
			changed := e
			changed.Expression = l
			m.instead("limit", i, changed)
		}
	}
}

// verdict adds mutants of a verdict.
func (m *netMutants) verdict(v nftable.Verdict, add func(class string, v nftable.Verdict)) {
	table := m.world.tables[m.at.table]
	switch v.Code {
	case nftable.Accept, nftable.Drop:
		add("verdict", nftable.Verdict{Code: nftable.Accept + nftable.Drop - v.Code})
		add("verdict", nftable.Verdict{Code: unix.NFT_RETURN})
	case unix.NFT_RETURN:
		add("verdict", nftable.Verdict{Code: nftable.Accept})
	case unix.NFT_JUMP, unix.NFT_GOTO:
		add("jump", nftable.Verdict{Code: unix.NFT_JUMP + unix.NFT_GOTO - v.Code, Chain: v.Chain})
		hooks := above(table, m.at.chain)
		for _, c := range table.Chains { // the kernel refuses a loop of chains
			if c.Hook == nil && c.Name != v.Chain && !hooks[c.Name] && slices.Equal(places(table, c.Name), places(table, v.Chain)) {
				add("jump", nftable.Verdict{Code: v.Code, Chain: c.Name})
			}
		}
	}
}

// calls returns the chains that a chain calls.
func calls(t *nftable.Table, c *nftable.Chain) (list []string) {
	for _, r := range c.Rules {
		for _, e := range r.Expressions {
			switch e := e.(type) {
			case nftable.Immediate:
				list = append(list, e.Verdict.Chain)
			case nftable.Lookup:
				for _, element := range t.Sets[e.Set].Elements {
					if element.Verdict != nil {
						list = append(list, element.Verdict.Chain)
					}
				}
			}
		}
	}
	return list
}

// above returns a chain and all chains that call it, directly or through other chains.
func above(t *nftable.Table, chain string) map[string]bool {
	out := map[string]bool{chain: true}
	for more := true; more; {
		more = false
		for _, c := range t.Chains {
			if !out[c.Name] && slices.ContainsFunc(calls(t, c), func(to string) bool { return out[to] }) {
				out[c.Name], more = true, true
			}
		}
	}
	return out
}

// places returns the hooks whose packets reach a chain.
func places(t *nftable.Table, chain string) (list []string) {
	for name := range above(t, chain) {
		if t.Chain(name).Hook != nil {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// elements adds mutants of a set or a map: a missing element, a wrong bound, and another verdict.
func (m *netMutants) elements(name string) {
	set := m.world.tables[m.at.table].Sets[name]
	change := func(class, text string, i int, to *nftable.Element) {
		m.table(class, fmt.Sprintf("set %s, element %x: %s", name, set.Elements[i].Key, text), func(tables []*nftable.Table) {
			s := tables[m.at.table].Sets[name]
			if to == nil {
				s.Elements = slices.Delete(s.Elements, i, i+1)
			} else {
				s.Elements[i] = *to
			}
		})
	}
	for i, e := range set.Elements {
		if i >= 8 && i%(len(set.Elements)/8) != 0 { // if there are many elements, mutants are made for only some of them
			continue
		}
		change("element of a set left out", "left out", i, nil)
		if next := successor(e.Key); next != nil && !slices.ContainsFunc(set.Elements, func(o nftable.Element) bool { return slices.Equal(o.Key, next) }) {
			change("element of a set, by one", "by one", i, &nftable.Element{Key: next, End: e.End, Verdict: e.Verdict})
		}
		if e.Verdict != nil {
			m.verdict(*e.Verdict, func(class string, v nftable.Verdict) {
				change(class, fmt.Sprintf("%+v", v), i, &nftable.Element{Key: e.Key, End: e.End, Verdict: &v})
			})
		}
	}
}
