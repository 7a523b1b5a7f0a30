// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"bytes"
	"fmt"
	"slices"
)

// Interval is a range of keys, in the order of memcmp. It includes both ends.
type Interval struct {
	First, Last []byte
	Of          Element
}

// Intervals returns the intervals of a set's elements, in the order of their keys.
func (s *Set) Intervals() (list []Interval, err error) {
	sorted := slices.Clone(s.Elements)
	slices.SortStableFunc(sorted, func(a, b Element) int { // for equal keys, the end of an interval sorts before the start of the next one
		if c := bytes.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return flag(b.End) - flag(a.End)
	})
	for i, e := range sorted {
		last := e.Key
		switch {
		case len(e.Key) != s.KeyBytes || e.End && !s.Interval():
			return nil, fmt.Errorf("set %s has a key of %d bytes, and keys of %d", s.Name, len(e.Key), s.KeyBytes)
		case e.End:
			continue
		case s.Interval() && i+1 == len(sorted): // an interval without an end has all following keys
			last = bytes.Repeat([]byte{0xff}, s.KeyBytes)
		case s.Interval() && bytes.Equal(sorted[i+1].Key, e.Key):
			return nil, fmt.Errorf("set %s has an interval twice", s.Name)
		case s.Interval():
			last = before(sorted[i+1].Key)
		}
		list = append(list, Interval{e.Key, last, e})
	}
	return list, nil
}

func flag(is bool) int {
	if is {
		return 1
	}
	return 0
}

// before returns the key that precedes the given key. The given key must not be the first possible one.
func before(key []byte) []byte {
	out := slices.Clone(key)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i]--; out[i] != 0xff {
			break
		}
	}
	return out
}
