// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/image"
)

// ruleMaps are the tables that the proof of the rules reads.
var ruleMaps = []string{image.Index, image.Rows, image.Results, image.Masks, image.Conditions}

// MutantsOfRules makes n mutants of decide() and of the tables of the rules, and proves or refutes each. harmless contains the proved mutants. gaveUp
// contains the mutants for which z3 found no answer.
func (s *Subject) MutantsOfRules(ctx context.Context, l smt.Limits, n int, r *rand.Rand) (counts map[string]*MutantCounts, harmless, gaveUp []string, err error) {
	reached := map[int][]bool{} // by instruction: the families whose packets reach it
	samples := map[bool][]*smt.Model{}
	for _, v6 := range []bool{false, true} {
		q, err := s.rulesQuery(v6, s.rules, nil)
		if err != nil {
			return nil, nil, nil, err
		}
		if samples[v6], err = q.samples(ctx, l); err != nil {
			return nil, nil, nil, err
		}
		for at := range q.visited {
			reached[at] = append(reached[at], v6)
		}
	}
	places := slices.Sorted(maps.Keys(reached))
	return makeMutants(ctx, n, func() (tried, bool) {
		m, ok := s.mutantOfRules(r, places)
		families := []bool{false, true}
		if m.code != nil {
			families = reached[m.at]
		}
		return tried{m.class, m.text, func() (smt.Answer, string) { return s.refuteRules(ctx, l, m, families, samples), "" }}, ok
	})
}

// mutantOfRules returns a random mutant. One mutant in four is of a table, if there is any table.
func (s *Subject) mutantOfRules(r *rand.Rand, places []int) (mutant, bool) {
	if r.IntN(4) == 0 {
		if m, ok := s.tableMutant(r, ruleMaps); ok {
			return m, true
		}
	}
	for range 100 {
		if list := mutantsOf(s.rules, places[r.IntN(len(places))]); len(list) > 0 {
			return list[r.IntN(len(list))], true
		}
	}
	return mutant{}, false
}

// refuteRules searches for a packet that a mutant decides wrongly. If the model cannot execute the code, the verifier would refuse the code. If the
// model cannot read the tables, they are not tables of these rules.
func (s *Subject) refuteRules(ctx context.Context, l smt.Limits, m mutant, families []bool, samples map[bool][]*smt.Model) smt.Answer {
	changed := *s
	if m.code != nil {
		changed.rules = m.code
	} else {
		world := *s.world
		world.tables = &tables{m.table, s.world.tables.constants}
		changed.world = &world
	}
	for _, v6 := range families {
		for _, sample := range samples[v6] { // faster than z3
			q, err := changed.rulesQuery(v6, changed.rules, sample)
			if err != nil || q.differ.IsTrue() {
				return smt.Satisfiable
			}
		}
	}
	answer := smt.Unsatisfiable
	for _, v6 := range families {
		q, err := changed.rulesQuery(v6, changed.rules, nil)
		switch {
		case errors.Is(err, errLost):
			answer = smt.Unknown
			continue
		case err != nil:
			return smt.Satisfiable
		}
		switch a, _, _ := q.c.Solve(ctx, l, q.differ); a {
		case smt.Satisfiable:
			return a
		case smt.Unknown:
			answer = a
		}
	}
	return answer
}

// samples returns packets that match rules: one packet for each of several rules, and one that no rule matches.
func (q *rulesQuery) samples(ctx context.Context, l smt.Limits) (list []*smt.Model, err error) {
	const most = 24
	n := len(q.run.meaning.program.Rules)
	for i := 0; i <= n; i += 1 + n/most {
		is := q.run.meaning.is(q.run.meaning.rule, uint64(i))
		answer, model, err := q.c.Solve(ctx, l, q.c.And(q.promised, is))
		if err != nil {
			return nil, err
		}
		if answer == smt.Satisfiable {
			list = append(list, model)
		}
	}
	return list, nil
}

// Add adds the counts of another MutantCounts.
func (c *MutantCounts) Add(o *MutantCounts) {
	c.Made, c.Caught, c.Equivalent, c.GaveUp = c.Made+o.Made, c.Caught+o.Caught, c.Equivalent+o.Equivalent, c.GaveUp+o.GaveUp
}
