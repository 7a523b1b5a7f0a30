// SPDX-License-Identifier: Apache-2.0

// Package ranges does set algebra on numbers, such as ports or protocols. A set is a list of ranges. A list is normalized
// when its ranges are sorted and neither overlap nor touch. The package does not know what the numbers mean.
//
//	closed := ranges.Complement(ranges.Normalize(open), 1<<16) // all other ports
package ranges
