// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/kernel/nftable"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

const stateField = packet.State

// spansIn returns the keys of a set of the table. If with is not nil, it returns the keys of the map's elements with that verdict.
func (w *netWorld) spansIn(s *nftable.Set, with *nftable.Verdict) ([]span, error) {
	key := spansKey{set: s, any: with == nil}
	if with != nil {
		key.with = *with
	}
	if have, ok := w.spans[key]; ok {
		return have, nil
	}
	list, err := spansOf(s, with)
	if err == nil {
		w.spans[key] = list
	}
	return list, err
}

// lookup looks up a key in a set or a map.
func (s *netRule) lookup(e nftable.Lookup) error {
	set := s.table.Sets[e.Set]
	if set == nil {
		return fmt.Errorf("a lookup in set %q, which is not there", e.Set)
	}
	key, err := s.bytesOf(e.From, set.KeyBytes)
	if err != nil {
		return err
	}
	if e.Map {
		return s.verdictMap(set, key)
	}
	var in *smt.Term
	if u, ok := s.world.sets[e.Set]; ok {
		in = u.in(s.decoded, key)
	} else {
		if set.Dynamic() {
			return fmt.Errorf("not covered: set %s, which changes and is none of the policy's", e.Set)
		}
		list, err := s.world.spansIn(set, nil)
		if err != nil {
			return err
		}
		in = s.among(key, list)
	}
	if e.Not {
		in = s.Not(in)
	}
	s.need(in)
	return nil
}

// verdictMap gives packets the verdicts of a map's elements. Packets whose key is not in the map continue with the next rule.
func (s *netRule) verdictMap(set *nftable.Set, key []*smt.Term) error {
	var verdicts []nftable.Verdict
	for i := range set.Elements {
		if v := set.Elements[i].Verdict; v != nil && !slices.Contains(verdicts, *v) {
			verdicts = append(verdicts, *v)
		}
	}
	for i := range verdicts {
		list, err := s.world.spansIn(set, &verdicts[i])
		if err != nil {
			return err
		}
		if err := s.decide(verdicts[i], s.among(key, list)); err != nil {
			return err
		}
	}
	s.need(s.False())
	return nil
}

// object uses a counter or a limit.
func (s *netRule) object(e nftable.Objref) error {
	o := s.table.Objects[e.Name]
	switch {
	case o == nil || o.Type != e.Type:
		return fmt.Errorf("object %q is not there", e.Name)
	case o.Type == unix.NFT_OBJECT_COUNTER:
		s.count(e.Name, s.alive())
		return nil
	case o.Type != unix.NFT_OBJECT_LIMIT:
		return fmt.Errorf("not covered: object %q of type %d", e.Name, o.Type)
	}
	limit, ok := s.world.limits[e.Name]
	if !ok {
		return fmt.Errorf("not covered: limit %q, which is none of the policy's", e.Name)
	}
	s.ask(limit, *o.Limit, s.False())
	return nil
}

// ask tests a limit. Only packets that exceed the limit continue with the rule.
func (s *netRule) ask(limit int, as nftable.Limit, wrongKey *smt.Term) {
	l := &s.world.program.Limits[limit]
	if !sameLimit(l, as) {
		s.fault(s.alive(), "limit %s has another rate or burst than the policy says", l.Rule)
	}
	before := orFalse(s.Context, s.asked[limit])
	s.fault(s.And(before, s.alive()), "limit %s is charged twice", l.Rule)
	s.fault(s.And(s.alive(), wrongKey), "limit %s is charged for other prefixes than the policy's", l.Rule)
	s.asked[limit] = s.Or(before, s.alive())
	s.need(s.Var(fmt.Sprintf("over.%d", limit), 0))
}

// sameLimit reports whether a token bucket of nftables equals a limit. The size of a bucket that counts bytes is the burst plus the amount of a unit
// of time (net/netfilter/nft_limit.c).
func sameLimit(l *ir.Limit, as nftable.Limit) bool {
	rate, burst := as.Rate, uint64(as.Burst)
	if as.Bytes {
		burst = 8 * (burst + rate)
		rate *= 8
	}
	unit := as.Unit * uint64(time.Second)
	return as.Over && as.Bytes == l.Bits && burst == l.Burst && unit > 0 && l.Per > 0 && rate*(uint64(l.Per)/unit) == l.Rate && uint64(l.Per)%unit == 0
}

// dynset tests a limit by prefixes, or counts connections by prefixes.
func (s *netRule) dynset(e nftable.Dynset) error {
	set := s.table.Sets[e.Set]
	if set == nil {
		return fmt.Errorf("set %q is not there", e.Set)
	}
	key, err := s.bytesOf(e.From, set.KeyBytes)
	if err != nil {
		return err
	}
	wrong := func(src, dst *ir.Prefixes) *smt.Term {
		want := slices.Concat(s.prefix(s.source, src), s.prefix(s.dest, dst))
		if len(want) != len(key) {
			return s.True()
		}
		same := s.True()
		for i, b := range want {
			same = s.And(same, s.Eq(b, key[i]))
		}
		return s.Not(same)
	}
	if limit, ok := s.world.limits[e.Set]; ok {
		as, isLimit := e.Expression.(nftable.Limit)
		if !isLimit || e.Op != unix.NFT_DYNSET_OP_UPDATE {
			return fmt.Errorf("not covered: set %s is not updated with a limit", e.Set)
		}
		l := &s.world.program.Limits[limit]
		s.ask(limit, as, wrong(l.Src, l.Dst))
		return nil
	}
	rule, ok := s.world.crowds[e.Set]
	as, isCount := e.Expression.(nftable.Connlimit)
	if !ok || !isCount || e.Op != unix.NFT_DYNSET_OP_ADD {
		return fmt.Errorf("not covered: set %s, to which packets add", e.Set)
	}
	r := &s.world.program.Rules[rule]
	if as.Count != r.Connections.Most || !as.Over {
		s.fault(s.alive(), "rule %s counts to another number of connections", r.Name)
	}
	s.fault(s.And(s.alive(), wrong(r.Connections.Src, r.Connections.Dst)), "rule %s counts connections of other prefixes", r.Name)
	s.need(s.Var(fmt.Sprintf("crowded.%d", rule), 0))
	return nil
}

// prefix returns an address truncated to a prefix length. It returns nothing if p has no prefix lengths.
func (d *decoded) prefix(address []*smt.Term, p *ir.Prefixes) (out []*smt.Term) {
	if p == nil {
		return nil
	}
	bits := p.V4
	if d.kind.v6 {
		bits = p.V6
	}
	for i, b := range address {
		left := min(max(bits-8*i, 0), 8)
		out = append(out, d.BitAnd(b, d.Const(8, 0xff<<(8-left)&0xff)))
	}
	return out
}
