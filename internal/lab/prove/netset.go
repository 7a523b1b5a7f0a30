package prove

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/lab/prove/nftable"
	"github.com/floodwall/floodwall/internal/lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// span are keys from one to another, both of them in it, as memcmp compares them.
type span struct{ first, last []byte }

// mostSpans is how many spans a formula compares one by one. Of more than that the formula has a function of the key, whose name tells the spans: two
// sets of the same spans are the same function, and of two others nothing is known.
const mostSpans = 512

// normalize sorts spans and joins those that touch.
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
			continue // all is in it
		}
		out = append(out, s)
	}
	return out
}

// successor is the next key, nil behind the last one.
func successor(key []byte) []byte {
	out := slices.Clone(key)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i]++; out[i] != 0 {
			return out
		}
	}
	return nil
}

// predecessor is the key before one that is not the first.
func predecessor(key []byte) []byte {
	out := slices.Clone(key)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i]--; out[i] != 0xff {
			break
		}
	}
	return out
}

// among is whether a key is in one of some normalized spans.
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

// words are bytes as numbers of at most 64 bits, the upper first.
func (d *decoded) words(key []*smt.Term) (out []*smt.Term) {
	for part := range slices.Chunk(key, 8) {
		out = append(out, d.joined(part))
	}
	return out
}

// numbers are the same of a constant.
func numbers(key []byte) (out []uint64) {
	for part := range slices.Chunk(key, 8) {
		var b [8]byte
		copy(b[8-len(part):], part)
		out = append(out, binary.BigEndian.Uint64(b[:]))
	}
	return out
}

// below is whether words are less than a constant.
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

// spansOf are the keys of a set of nftables; with a verdict, those of the map's elements that have it.
func spansOf(s *nftable.Set, with *nftable.Verdict) ([]span, error) {
	wanted := func(e *nftable.Element) bool { return with == nil || e.Verdict != nil && *e.Verdict == *with }
	var out []span
	if !s.Interval() {
		for i := range s.Elements {
			e := &s.Elements[i]
			if e.End || len(e.Key) != s.KeyBytes {
				return nil, fmt.Errorf("not covered: set %s has a key of %d bytes, and keys of %d", s.Name, len(e.Key), s.KeyBytes)
			}
			if wanted(e) {
				out = append(out, span{e.Key, e.Key})
			}
		}
		return normalize(out), nil
	}
	sorted := slices.Clone(s.Elements)
	slices.SortStableFunc(sorted, func(a, b nftable.Element) int { // a begin behind an end of the same key
		if c := bytes.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return cmp.Compare(flag(b.End), flag(a.End))
	})
	for i := range sorted {
		e := &sorted[i]
		if len(e.Key) != s.KeyBytes {
			return nil, fmt.Errorf("not covered: set %s has a key of %d bytes, and keys of %d", s.Name, len(e.Key), s.KeyBytes)
		}
		if e.End || !wanted(e) {
			continue
		}
		last := bytes.Repeat([]byte{0xff}, s.KeyBytes) // without an end it is all that follows
		if i+1 < len(sorted) {
			if bytes.Equal(sorted[i+1].Key, e.Key) {
				return nil, fmt.Errorf("not covered: set %s has an interval twice", s.Name)
			}
			last = predecessor(sorted[i+1].Key)
		}
		out = append(out, span{e.Key, last})
	}
	return normalize(out), nil
}

// spansOfSet are those of a policy's set, in a family.
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
