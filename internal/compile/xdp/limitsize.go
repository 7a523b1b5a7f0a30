// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"math"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Sizes of the tables of limits, in buckets of 64 bytes. A table must hold the sources of a flood at floodRate in which
// each packet has another source. All tables whose size the policy does not set share defaultBuckets (256 MB).
const (
	leastBuckets   = 1 << 10
	mostBuckets    = 1 << 20
	defaultBuckets = 1 << 22

	floodRate = 10_000_000 // packets a second

	// perBucket is the average number of debts in a bucket. With 3 debts for 7 slots, one debt in 200 finds no slot
	// (Poisson). In a flood whose sources change, one packet in 50 finds all slots in use (Erlang's formula B).
	perBucket = image.LimitPerBucket

	// The hash has 24 bits for the number of the bucket. All tables are in one map, in which indices have 32 bits.
	maxLimitPrefixes = perBucket << 24
)

// limitBuckets returns the size of each limit's table in buckets, a power of two. Tables whose size the policy does not set share defaultBuckets.
// While their sum exceeds that number, the largest one is halved.
func limitBuckets(limits []ir.Limit) []uint32 {
	sizes := make([]uint32, len(limits))
	total := uint32(0)
	for i := range limits {
		sizes[i] = bucketsFor(&limits[i])
		if limits[i].Max == 0 {
			total += sizes[i]
		}
	}
	for total > defaultBuckets {
		largest := -1
		for i := range limits {
			if limits[i].Max == 0 && (largest < 0 || sizes[i] > sizes[largest]) {
				largest = i
			}
		}
		if sizes[largest] <= leastBuckets {
			break
		}
		sizes[largest] /= 2
		total -= sizes[largest]
	}
	return sizes
}

// bucketsFor returns the table size for the policy's number of prefixes. If the policy sets no number, it returns the size for a flood. The result is
// never larger than the size for all possible prefixes.
func bucketsFor(l *ir.Limit) uint32 {
	prefixes := possiblePrefixes(l)
	if l.Max > 0 {
		return powerOfTwoOf(min(prefixes, float64(l.Max)) / perBucket)
	}
	buckets := powerOfTwoOf(floodRate * debtTime(l).Seconds() / perBucket)
	return min(max(buckets, leastBuckets), mostBuckets, powerOfTwoOf(prefixes/perBucket))
}

// powerOfTwoOf returns the smallest power of two that is at least x, from 1 to the size of the largest table.
func powerOfTwoOf(x float64) uint32 {
	return uint32(image.PowerOfTwo(int(math.Ceil(min(x, maxLimitPrefixes/perBucket)))))
}

// debtTime returns the time for which a source that sends a single packet remains in the table.
func debtTime(l *ir.Limit) time.Duration {
	amount := 1.0
	if l.Bits {
		amount = packet.SmallestBits
	}
	return time.Duration(math.Ceil(min(amount*float64(l.Per)/float64(l.Rate), math.MaxInt64/2)))
}

// possiblePrefixes returns the number of possible prefixes. It returns 1 if all packets share the limit.
func possiblePrefixes(l *ir.Limit) float64 {
	v4, v6 := 0, 0
	for _, p := range []*ir.Prefixes{l.Src, l.Dst} {
		if p != nil {
			v4, v6 = v4+p.V4, v6+p.V6
		}
	}
	if l.Src == nil && l.Dst == nil {
		return 1
	}
	return math.Exp2(float64(v4)) + math.Exp2(float64(v6))
}

// LimitNotes returns notes about limits whose tables in XDP could be filled by a flood of random sources.
func LimitNotes(p *ir.Program) (notes []string) {
	buckets := limitBuckets(p.Limits)
	for i := range p.Limits {
		l := &p.Limits[i]
		holds := perBucket * float64(buckets[i])
		rate := holds / debtTime(l).Seconds()
		if l.Lenient || rate >= floodRate || holds >= possiblePrefixes(l) {
			continue
		}
		notes = append(notes, fmt.Sprintf("limit %q: its table in XDP holds %.0f prefixes; a flood from more than %.0f random sources a second "+
			"makes it forget the least offenders; max: raises it", l.Rule, holds, rate))
	}
	return notes
}
