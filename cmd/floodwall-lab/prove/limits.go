// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// proveLimits compares the records of limits, which the code reads, with the limits of the program: prefixes, unit, rate and burst. A record must not
// let more packets pass than the limit, and not less than 99 percent of the limit. After the records of limits come the records of limits that judge
// bans.
func proveLimits(p *ir.Program, records []image.LimitInfo) error {
	limits := slices.Clone(p.Limits)
	for i := range p.Rules {
		r := &p.Rules[i]
		if p.Bans(r) && slices.ContainsFunc(r.Over, func(n int) bool { return p.Limits[n].Ban != nil && !p.Limits[n].Ban.Forgeable }) {
			for _, n := range r.Over {
				limits = append(limits, p.Limits[n])
			}
		}
	}
	if len(limits) != len(records) {
		return fmt.Errorf("there are %d limits, and records of %d", len(limits), len(records))
	}
	for i := range records {
		if err := proveLimit(&limits[i], &records[i]); err != nil {
			return fmt.Errorf("limit %d, of rule %q: %w", i, limits[i].Rule, err)
		}
	}
	return nil
}

func proveLimit(l *ir.Limit, record *image.LimitInfo) error {
	for side, masks := range map[string][2]image.AddressMask{"source": record.Src, "destination": record.Dst} {
		prefixes := map[string]*ir.Prefixes{"source": l.Src, "destination": l.Dst}[side]
		lengths := [2]int{}
		if prefixes != nil {
			lengths = [2]int{96 + prefixes.V4, prefixes.V6} // IPv4 addresses are in mapped form
		}
		for family, mask := range masks {
			if length, ok := prefixLength(mask); !ok || length != lengths[family] {
				return fmt.Errorf("the record keeps %016x%016x of the %s, in place of %d bits", mask.Hi, mask.Lo, side, lengths[family])
			}
		}
	}
	if byPrefix := l.Src != nil || l.Dst != nil; byPrefix != (record.Prefixes == 1) || l.Bits != (record.Bits == 1) {
		return fmt.Errorf("the record has prefixes=%d bits=%d", record.Prefixes, record.Bits)
	}
	return proveRate(l, record)
}

// prefixLength returns the number of leading bits that a mask keeps. ok is false if the mask keeps other bits.
func prefixLength(mask image.AddressMask) (length int, ok bool) {
	rest := new(big.Int).Or(new(big.Int).Lsh(new(big.Int).SetUint64(mask.Hi), 64), new(big.Int).SetUint64(mask.Lo))
	for length < 128 && rest.Bit(127-length) == 1 {
		rest.SetBit(rest, 127-length, 0)
		length++
	}
	return length, rest.Sign() == 0
}

// proveRate compares two values: the cost of a packet or a bit as a time, and the debt above which a limit is exceeded.
func proveRate(l *ir.Limit, record *image.LimitInfo) error {
	unit := new(big.Rat).SetFrac(shifted(record.Right), shifted(record.Left)) // ns
	cost := new(big.Rat).SetFrac(new(big.Int).SetUint64(record.Cost), shifted(image.LimitFraction))
	cost.Mul(cost, unit)
	right := new(big.Rat).SetFrac(big.NewInt(int64(l.Per)), new(big.Int).SetUint64(l.Rate))
	if most := new(big.Rat).Mul(right, big.NewRat(101, 100)); cost.Cmp(right) < 0 || cost.Cmp(most) > 0 {
		return fmt.Errorf("each costs %s ns, and the rate allows one in %s ns", cost.FloatString(3), right.FloatString(3))
	}
	burst := new(big.Rat).SetFrac(new(big.Int).SetUint64(record.Most), big.NewInt(1))
	burst.Mul(burst, unit).Quo(burst, cost)
	least := new(big.Rat).SetInt(new(big.Int).SetUint64(l.Burst))
	rounded := new(big.Rat).Add(least, new(big.Rat).Quo(unit, cost)) // the debt is rounded up to a unit
	if burst.Cmp(least) < 0 || burst.Cmp(rounded) >= 0 {
		return fmt.Errorf("%s may come at once, in place of %d", burst.FloatString(3), l.Burst)
	}
	return nil
}

func shifted(by uint8) *big.Int { return new(big.Int).Lsh(big.NewInt(1), uint(by)) }
