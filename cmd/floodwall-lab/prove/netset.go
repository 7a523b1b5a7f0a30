// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/kernel/nftable"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// span is a range of keys from first to last, including both, in the order of memcmp.
type span struct{ first, last []byte }

// mostSpans is the largest number of spans that a formula compares one by one. For more spans, the formula uses an uninterpreted function of the key,
// whose name contains the spans. Two sets with the same spans are the same function. For sets with different spans, nothing is known about the
// functions.
const mostSpans = 512

// normalize sorts spans and merges those that touch.
func normalize(list []span) []span {
	slices.SortFunc(list, func(a, b span) int { return bytes.Compare(a.first, b.first) })
	var out []span
	for _, s := range list {
		if n := len(out); n > 0 && bytes.Compare(s.first, successor(out[n-1].last)) <= 0 && successor(out[n-1].last) != nil {
			if bytes.Compare(out[n-1].last, s.last) < 0 {
				out[n-1].last = s.last
			}
			continue
		} else if n > 0 && successor(out[n-1].last) == nil {
			continue // the previous span contains this span
		}
		out = append(out, s)
	}
	return out
}

// successor returns the next key, or nil after the last one.
func successor(key []byte) []byte {
	out := slices.Clone(key)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i]++; out[i] != 0 {
			return out
		}
	}
	return nil
}

// predecessor returns the previous key. The key must not be the first one.
func predecessor(key []byte) []byte {
	out := slices.Clone(key)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i]--; out[i] != 0xff {
			break
		}
	}
	return out
}

// among returns a formula that holds if a key is in one of the normalized spans.
func (d *decoded) among(key []*smt.Term, list []span) *smt.Term {
	if len(list) == 0 {
		return d.False()
	}
	if len(list) > mostSpans {
		h := fnv.New64a()
		for _, s := range list {
			h.Write(s.first)
			h.Write(s.last)
		}
		return d.Apply(fmt.Sprintf("spans.%d.%x", len(list), h.Sum64()), 0, d.words(key)...)
	}
	words := d.words(key)
	var of func(list []span) *smt.Term
	of = func(list []span) *smt.Term {
		if len(list) == 1 {
			return d.between(words, list[0])
		}
		middle := len(list) / 2
		return d.Ite(d.below(words, numbers(list[middle].first)), of(list[:middle]), of(list[middle:]))
	}
	return of(list)
}

// words returns bytes as numbers of at most 64 bits, the most significant first.
func (d *decoded) words(key []*smt.Term) (out []*smt.Term) {
	for part := range slices.Chunk(key, 8) {
		out = append(out, d.joined(part))
	}
	return out
}

// numbers returns the words of a constant key.
func numbers(key []byte) (out []uint64) {
	for part := range slices.Chunk(key, 8) {
		var b [8]byte
		copy(b[8-len(part):], part)
		out = append(out, binary.BigEndian.Uint64(b[:]))
	}
	return out
}

// below returns a formula that holds if words are less than a constant.
func (d *decoded) below(words []*smt.Term, bound []uint64) *smt.Term {
	if len(words) == 0 {
		return d.False()
	}
	c := d.Const(words[0].Width, bound[0])
	return d.Or(d.ULT(words[0], c), d.And(d.Eq(words[0], c), d.below(words[1:], bound[1:])))
}

func (d *decoded) equal(words []*smt.Term, to []uint64) *smt.Term {
	out := d.True()
	for i, w := range words {
		out = d.And(out, d.Eq(w, d.Const(w.Width, to[i])))
	}
	return out
}

func (d *decoded) between(words []*smt.Term, s span) *smt.Term {
	if bytes.Equal(s.first, s.last) {
		return d.equal(words, numbers(s.first))
	}
	out := d.Not(d.below(words, numbers(s.first)))
	if next := successor(s.last); next != nil {
		out = d.And(out, d.below(words, numbers(next)))
	}
	return out
}

// spansOf returns the keys of an nftables set. If with is not nil, it returns the keys of the map's elements with that verdict.
func spansOf(s *nftable.Set, with *nftable.Verdict) ([]span, error) {
	intervals, err := s.Intervals()
	if err != nil {
		return nil, fmt.Errorf("not covered: %w", err)
	}
	var out []span
	for _, i := range intervals {
		switch e := &i.Of; {
		case e.Unread != nil:
			return nil, fmt.Errorf("not covered: %w", e.Unread)
		case e.Expires:
			return nil, fmt.Errorf("not covered: set %s has an element with a timeout", s.Name)
		case with == nil || e.Verdict != nil && *e.Verdict == *with:
			out = append(out, span{i.First, i.Last})
		}
	}
	return normalize(out), nil
}

// spansOfSet returns the spans of a policy's set for a family.
func spansOfSet(s *addrs.Set, v6 bool) (out []span) {
	if s == nil {
		return nil
	}
	for p := range s.Prefixes() {
		if p.Addr().Is4() == v6 {
			continue
		}
		r := netipx.RangeOfPrefix(p)
		out = append(out, span{r.From().AsSlice(), r.To().AsSlice()})
	}
	return normalize(out)
}
