// Package ranges is the algebra of sets of numbers, such as ports or protocols, as lists of ranges. A list is normalized when
// its ranges are sorted, and neither overlap nor touch.
// It does not know what the numbers mean.
//
//	closed := ranges.Complement(ranges.Normalize(open), 1<<16) // all other ports
package ranges
