// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// minPrecision is the shortest time per packet, in whole units of time, for which rounding raises the rate by at most 1%.
const minPrecision = 100

// NftablesRate is a limit in the form of nftables: packets or bytes per unit of time, and a burst.
type NftablesRate struct {
	Amount uint64
	Per    time.Duration
	Burst  uint64
}

// rateUnits are the units of time in which nft counts rates, the shortest first.
var rateUnits = []struct {
	per  time.Duration
	name string
}{{time.Second, "second"}, {time.Minute, "minute"}, {time.Hour, "hour"}, {24 * time.Hour, "day"}}

// Unit is the unit of time as nft writes it.
func (r NftablesRate) Unit() string {
	for _, u := range rateUnits {
		if u.per == r.Per {
			return u.name
		}
	}
	return ""
}

// RateForNftables returns the rate of a limit in nftables, or the reason why nftables cannot express it. The kernel has a token bucket that counts
// nanoseconds (net/netfilter/nft_limit.c). The bucket is full at first and has space for the burst. Packets above the limit take no tokens. ir.Limit
// is the same bucket, except that the kernel rounds the time of a packet or of its bytes to whole nanoseconds.
func RateForNftables(l *ir.Limit) (r NftablesRate, why string) {
	if l.Bits {
		return bytesForNftables(l)
	}
	each := uint64(l.Per) / l.Rate
	if uint64(l.Per)%l.Rate > 0 && each < minPrecision {
		return r, "nftables counts in whole nanoseconds, which is too coarse for this rate"
	}
	if l.Burst > 1<<32-1 || overflows(each, l.Burst) {
		return r, "the burst is more than nftables can count"
	}
	return NftablesRate{l.Rate, l.Per, l.Burst}, ""
}

// bytesForNftables does the same as RateForNftables, for a limit of bits. The kernel's bucket has space for the bytes of one unit of time plus the
// burst. So the shortest unit with a whole number of bytes is best.
func bytesForNftables(l *ir.Limit) (r NftablesRate, why string) {
	r = NftablesRate{Amount: l.Rate / 8, Per: l.Per}
	burst := l.Burst / 8
	for _, u := range rateUnits {
		if n := uint64(l.Per / max(u.per, 1)); n > 0 && l.Rate%(8*n) == 0 {
			r.Amount, r.Per = l.Rate/8/n, u.per
			break
		}
	}
	switch {
	case l.Rate%8 > 0 || l.Burst%8 > 0:
		return r, "nftables counts bytes, of which this rate or its burst is no whole number"
	case burst < r.Amount:
		return r, fmt.Sprintf("nftables allows a burst of at least what comes in one %s, %d bits", r.Unit(), 8*r.Amount)
	case burst-r.Amount > 1<<32-1 || overflows(uint64(r.Per), burst):
		return r, "rate and burst are more than nftables can count"
	}
	r.Burst = burst - r.Amount
	return r, ""
}

// unfitNftables returns the reason why nftables cannot express a limit. It returns "" if it can.
func unfitNftables(l *ir.Limit) (why string) {
	_, why = RateForNftables(l)
	return why
}

// overflows reports whether a product does not fit 64 bits.
func overflows(a, b uint64) bool {
	high, _ := bits.Mul64(a, b)
	return high > 0
}

// unfitIptables returns the reason why hashlimit cannot express a limit. It returns "" if it can. Its token bucket is that of ir.Limit: it is full at
// first and has space for the burst, and packets above the limit take no tokens. But the bucket is filled once per tick of the kernel's clock (HZ),
// and the time of a packet is rounded to whole microseconds (net/netfilter/xt_hashlimit.c).
func unfitIptables(l *ir.Limit) (why string) {
	const most = 1_000_000 // XT_HASHLIMIT_BURST_MAX, and XT_HASHLIMIT_SCALE_v2 per second
	each := uint64(l.Per/time.Microsecond) / l.Rate
	switch {
	case l.Bits:
		return "hashlimit counts blocks of 16 bytes, not bits"
	case uint64(l.Per/time.Microsecond)%l.Rate > 0 && each < minPrecision:
		return "hashlimit counts in whole microseconds, which is too coarse for this rate"
	case l.Burst > most:
		return fmt.Sprintf("hashlimit has bursts of at most %d packets", most)
	case Drained(l) > int64(24*time.Hour/time.Second):
		return "hashlimit has bursts of at most what comes in one day"
	}
	return ""
}

// Drained returns the time, in whole seconds, after which the bucket of an idle prefix is full again. Such a prefix need not be remembered, because
// it is then like a new prefix.
func Drained(l *ir.Limit) int64 {
	seconds := float64(l.Burst) / float64(l.Rate) * l.Per.Seconds()
	return int64(seconds) + 2
}

// RateNotes returns notes about rates that become too high by at least a thousandth, because the time of a packet is rounded to whole units.
func RateNotes(p *ir.Program, target Target) (notes []string) {
	unit := time.Nanosecond
	if target == TargetIptables {
		unit = time.Microsecond
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		amount, of := 1.0, ""
		if l.Bits {
			amount, of = packet.SmallestBits, " of the smallest packets"
		}
		units := amount * float64(l.Per) / float64(unit) / float64(l.Rate)
		if more := units/math.Floor(units) - 1; more >= 0.001 {
			notes = append(notes, fmt.Sprintf("limit %q: %s cuts the time of a packet to whole units of %s, and lets %.1f%% more%s pass than the "+
				"rate says", l.Rule, target, unit, 100*more, of))
		}
	}
	return notes
}
