// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
)

// Outside proves that the entry decides only usual frames, and leaves all others to general().
func (s *Subject) Outside(ctx context.Context, l smt.Limits) (r Result) {
	start := time.Now()
	r.Kind = "all other frames"
	defer func() { r.Time = time.Since(start) }()
	resolved, err := newCode(s.entry)
	if err != nil {
		r.Why = err.Error()
		return r
	}
	c := smt.New()
	f := newFrame(c, nil)
	w := *s.world
	w.decoded = decode(c, f, kind{proto: protoUDP}) // this is for the results of functions, which do not matter here
	usual := c.False()
	for _, k := range kinds() {
		is := c.True()
		for at, t := range k.known(c) {
			if v, ok := t.IsConst(); ok {
				is = c.And(is, c.Eq(f.byte(at), c.Const(8, v)))
			} else { // the upper half of a byte
				is = c.And(is, c.Eq(c.Extract(f.byte(at), 4, 4), c.Const(4, 6)))
			}
		}
		usual = c.Or(usual, is)
	}
	other := c.Not(usual)
	m := &machine{Context: c, frame: f, world: &w, code: resolved}
	m.feasible = func(cond *smt.Term) bool { // excludes the rules for usual frames, because no other frame reaches them
		answer, _, err := c.Solve(ctx, l, c.And(cond, other))
		return answer != smt.Unsatisfiable || err != nil
	}
	if err := m.run(); err != nil {
		r.Why = err.Error()
		return r
	}
	decided := c.False()
	for _, e := range m.exits {
		if e.kind != byGeneral {
			decided = c.Or(decided, e.cond)
		}
	}
	r.Terms = c.Terms()
	answer, model, err := c.Solve(ctx, l, c.And(decided, other))
	r.Answer, r.CPU, r.Decided = answer, c.Used, !decided.IsFalse()
	switch {
	case err != nil:
		r.Why = err.Error()
	case answer == smt.Satisfiable:
		r.Why = "a frame of no usual kind is decided"
		r.Frame = (&query{c: c, frame: f}).frameOf(model)
	}
	return r
}
