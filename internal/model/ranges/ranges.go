// SPDX-License-Identifier: Apache-2.0

package ranges

import (
	"cmp"
	"slices"
)

// Range is a range of values. Both ends are included.
type Range struct{ First, Last uint32 }

// Of returns a list with the single value v.
func Of(v uint32) []Range { return []Range{{First: v, Last: v}} }

// Normalize sorts ranges and joins those that overlap or touch.
func Normalize(list []Range) []Range {
	slices.SortFunc(list, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	out := list[:0:0]
	for _, r := range list {
		if n := len(out); n > 0 && r.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// Complement returns the values below size that are not in a normalized list.
func Complement(list []Range, size uint32) []Range {
	out := []Range{}
	next := uint32(0)
	for _, r := range list {
		if r.First > next {
			out = append(out, Range{First: next, Last: r.First - 1})
		}
		next = r.Last + 1
	}
	if next < size {
		out = append(out, Range{First: next, Last: size - 1})
	}
	return out
}

// Common returns the values that are in both lists. Both lists must be normalized, and all values must be less than size.
func Common(a, b []Range, size uint32) []Range {
	return Complement(Normalize(append(Complement(a, size), Complement(b, size)...)), size)
}

// Shift subtracts base from all values. No value may be less than base.
func Shift(list []Range, base uint32) []Range {
	out := slices.Clone(list)
	for i := range out {
		out[i].First -= base
		out[i].Last -= base
	}
	return out
}

// Overlap reports whether two normalized lists of ranges have a value in common.
func Overlap(a, b []Range) bool {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i].Last < b[j].First:
			i++
		case b[j].Last < a[i].First:
			j++
		default:
			return true
		}
	}
	return false
}

// Within reports whether all values of a are in b. Both lists must be normalized.
func Within(a, b []Range) bool {
	i := 0
	for _, r := range a {
		for i < len(b) && b[i].Last < r.First {
			i++
		}
		if i == len(b) || b[i].First > r.First || b[i].Last < r.Last {
			return false
		}
	}
	return true
}

// Decrease subtracts n from all values that are at least n, and drops the smaller values. A normalized list stays
// normalized.
func Decrease(values []Range, n uint32) (out []Range) {
	for _, r := range values {
		if r.Last >= n {
			out = append(out, Range{First: max(r.First, n) - n, Last: r.Last - n})
		}
	}
	return out
}

// Span returns the range of values from first to last.
func Span(first, last uint32) Range { return Range{First: first, Last: last} }
