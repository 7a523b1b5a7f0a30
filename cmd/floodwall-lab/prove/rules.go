// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// decideName is the name of the function of the C part whose body the compiler generates.
const decideName = "decide"

// Rules proves that decide() decides like Eval, for any packet of a family that passes the checks: the same rule decides, and the same conditions are
// tested. general() calls decide() for the decision of the rules.
func (s *Subject) Rules(ctx context.Context, v6 bool, l smt.Limits) (r Result) {
	start := time.Now()
	r.Kind = "rules asked by general(), IPv4"
	if v6 {
		r.Kind = "rules asked by general(), IPv6"
	}
	defer func() { r.Time = time.Since(start) }()
	q, err := s.rulesQuery(v6, s.rules, nil)
	if err != nil {
		r.Why = err.Error()
		return r
	}
	answer, model, err := q.c.Solve(ctx, l, q.differ)
	r.Decided = true
	r.answered(q.c, answer, err, func() { r.Why, r.State = q.explain(model), q.fieldsOf(model) })
	return r
}

// errLost is the error for code that reads tables at too many different offsets for a formula.
var errLost = errors.New("the code reads tables at too many places for a formula")

// rulesQuery is the formula of the packets for which decide() behaves differently from the program. Its parts are those of query.
type rulesQuery struct {
	query
	run      *rulesRun
	promised *smt.Term    // the guarantees of the C code
	visited  map[int]bool // instructions of decide() that any packet reaches
}

// rulesQuery makes the formula. If values of variables are given, the code and the tables are executed with numbers, and the result is that of one
// packet.
func (s *Subject) rulesQuery(v6 bool, code asm.Instructions, given *smt.Model) (*rulesQuery, error) {
	unrolled, origin, err := unroll(code)
	if err != nil {
		return nil, err
	}
	resolved, err := newCode(unrolled)
	if err != nil {
		return nil, err
	}
	asked, err := readConditions(s.Program, s.world.slots, s.world.tables)
	if err != nil {
		return nil, err
	}
	c := smt.New()
	c.Given = given
	w := *s.world
	w.decoded = packetOf(c, v6)
	memory := s.world.tables.memory
	meaning, err := meanRules(w.decoded, &w, asked, memory[image.Results])
	if err != nil {
		return nil, err
	}
	t := w.tables
	run := &rulesRun{
		Context: c, memory: map[string][]byte{}, elements: s.elements, conditions: asked, meaning: meaning,
		sets: [2]uint32{t.number("dynamic_src_sets"), t.number("dynamic_dst_sets")}, local: t.number("local_set"),
		classified: [2]bool{t.set("classify_src"), t.set("classify_dst")}, lowest: map[*smt.Term]*smt.Term{}, reads: map[readKey]*smt.Term{},
	}
	for _, name := range []string{image.Index, image.Rows, image.Results, image.Masks} {
		run.memory[name] = memory[name]
	}
	meaning.decide(run)
	m := &machine{Context: c, world: &w, code: resolved, rules: run}
	if err := m.run(); err != nil {
		return nil, err
	}
	if run.lost {
		return nil, errLost
	}
	q := &rulesQuery{query: query{c: c, machine: m}, run: run, visited: map[int]bool{}}
	for at := range m.visited {
		q.visited[origin[at]] = true
	}
	for _, x := range m.faults {
		q.part(x.cond, fmt.Sprintf("instruction %d of decide(): %s", origin[x.at], x.why))
	}
	for _, e := range run.exits {
		q.end(e)
	}
	if meaning.named {
		q.part(c.Bool(int(t.number("table_conditions")) < len(asked.records)), "C asks fewer conditions than there are")
	}
	differ := c.False()
	for _, p := range q.parts {
		differ = c.Or(differ, p.cond)
	}
	q.promised = c.And(meaning.readable, run.found(), c.And(run.defined...))
	q.differ = c.And(differ, q.promised)
	return q, nil
}

// end adds the packets for which an exit of decide() is wrong.
func (q *rulesQuery) end(e ruleExit) {
	c, m := q.c, q.run.meaning
	q.part(c.And(e.cond, c.Not(c.Eq(c.Extract(e.decision, 8, 24), c.Extract(m.decision, 8, 24)))), "the reason differs")
	q.part(c.And(e.cond, c.Not(c.Eq(c.Extract(e.decision, 0, 8), c.Extract(m.decision, 0, 8)))), "the verdict or a flag differs")
	if m.named {
		q.names(e)
	}
	for key := range unionOfKeys(e.effects, m.effects) {
		what := fmt.Sprintf("limit %d is charged by one only", key)
		switch {
		case key >= questionAt:
			what = "a question about a flood is asked by one only"
		case key >= observedAt:
			what = "a packet is observed by one only"
		case key >= askedAgain:
			what = fmt.Sprintf("limit %d is charged again by one only", key-askedAgain)
		}
		q.part(c.And(e.cond, c.Not(c.Eq(orFalse(c, e.effects[key]), orFalse(c, m.effects[key])))), what)
	}
}

func unionOfKeys(a, b effects) map[int]bool {
	out := map[int]bool{}
	for _, m := range []effects{a, b} {
		for key := range m {
			out[key] = true
		}
	}
	return out
}

// names adds the packets for which the tables name a wrong condition, or a wrong place at which to continue.
func (q *rulesQuery) names(e ruleExit) {
	c, m := q.c, q.run.meaning
	asks, goesOn := c.False(), c.False()
	for i, is := range m.asked {
		want, right := q.run.conditions.rules[i].key(), c.False()
		for number, record := range q.run.conditions.records {
			if record != nil && record.key() == want {
				right = c.Or(right, m.is(e.condition, uint64(number)))
			}
		}
		next := c.False()
		for place, rule := range m.from {
			if rule == i+1 {
				next = c.Or(next, m.is(e.first, uint64(place)))
			}
		}
		asks, goesOn = c.Or(asks, c.And(is, c.Not(right))), c.Or(goesOn, c.And(is, c.Not(next)))
	}
	q.part(c.And(e.cond, asks), "another condition is named than the rule's")
	q.part(c.And(e.cond, goesOn), "where its condition does not hold, the tables go on at another rule than the next")
}

// fieldsOf returns the fields and addresses of a model, and its other state, as texts.
func (q *rulesQuery) fieldsOf(m *smt.Model) (list []string) {
	d := q.run.meaning
	for f := range packet.NumFields {
		list = append(list, fmt.Sprintf("%s=%d", f, m.Eval(d.field[f])))
	}
	for _, side := range []struct {
		name  string
		bytes []*smt.Term
	}{{"source", d.source}, {"destination", d.dest}} {
		bytes := make([]byte, len(side.bytes))
		for i, b := range side.bytes {
			bytes[i] = byte(m.Eval(b))
		}
		list = append(list, side.name+"="+addressText(bytes))
	}
	known := len(list)
	for name, v := range m.Vars {
		_, isField := fieldNames[name]
		if v != 0 && !isField && !strings.HasPrefix(name, "source.") && !strings.HasPrefix(name, "destination.") && !strings.Contains(name, "!") {
			list = append(list, fmt.Sprintf("%s=%d", name, v))
		}
	}
	slices.Sort(list[known:])
	return list
}

func addressText(b []byte) string {
	a, _ := netip.AddrFromSlice(b)
	return a.String()
}

var fieldNames = func() map[string]bool {
	out := map[string]bool{}
	for f := range packet.Field(packet.NumKeys) {
		out[f.String()] = true
	}
	return out
}()
