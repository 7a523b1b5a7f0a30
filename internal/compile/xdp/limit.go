// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// limits are the rates of a program, and their tables of debts.
type limits struct {
	infos  []image.LimitInfo
	keys   limitKeys
	proved map[int]uint32 // for each rule, 1 plus the number of the first limit that decides its bans; other rules have no entry
}

// limitKeys are the secret keys for the hash of prefixes. A sender that knew them could choose sources that share a bucket.
type limitKeys struct {
	sums [8]uint32
	mix  [2]uint64 // odd
}

func compileLimits(p *ir.Program) (*limits, error) {
	out := &limits{proved: map[int]uint32{}}
	base := uint32(0)
	buckets := limitBuckets(p.Limits)
	for i := range p.Limits {
		l := &p.Limits[i]
		info, err := limitRate(l)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", l.Rule, err)
		}
		if l.Max > maxLimitPrefixes {
			return nil, fmt.Errorf("rule %q: the limit shall hold %d prefixes, at most %d fit", l.Rule, l.Max, maxLimitPrefixes)
		}
		if base+buckets[i] > maxLimitBuckets {
			return nil, fmt.Errorf("rule %q: all limits together shall hold more than fits into 4 GB: lower max: of some", l.Rule)
		}
		info.Base, info.Mask = base, buckets[i]-1
		info.byPrefix(l)
		base += buckets[i]
		out.infos = append(out.infos, info.LimitInfo)
	}
	base = out.judge(p, base)
	if base > maxLimitBuckets {
		return nil, fmt.Errorf("all limits together shall hold more than fits into 4 GB: lower max: of some")
	}
	var err error
	if len(out.infos) > 0 {
		out.keys, err = drawLimitKeys()
	}
	return out, err
}

// provedBuckets is the largest size of a table that decides bans (1 MB). Only senders with an open connection are in such a table.
const provedBuckets = 1 << 14

// judged reports whether only packets from proved addresses can cause a rule's bans.
func judged(p *ir.Program, r *ir.Rule) bool {
	return p.Bans(r) && slices.ContainsFunc(r.Over, func(i int) bool { return p.Limits[i].Ban != nil && !p.Limits[i].Ban.Forgeable })
}

// judge adds the limits that decide bans. For each limit of a judged rule, it adds one with the same rate. The tables of the new limits begin at the
// bucket base. judge returns the first bucket after these tables.
func (l *limits) judge(p *ir.Program, base uint32) uint32 {
	for i := range p.Rules {
		if !judged(p, &p.Rules[i]) {
			continue
		}
		l.proved[i] = uint32(len(l.infos)) + 1
		for _, number := range p.Rules[i].Over {
			info := l.infos[number]
			buckets := min(info.Mask+1, provedBuckets)
			info.Base, info.Mask = base, buckets-1
			base += buckets
			l.infos = append(l.infos, info)
		}
	}
	return base
}

// maxLimitBuckets is the largest number of buckets of all tables together: 4 GB.
const maxLimitBuckets = 1 << 26

// limitInfo is the record of a limit during its construction.
type limitInfo struct{ image.LimitInfo }

// Bounds for the unit of a limit, as powers of two of a nanosecond. The unit is the finest one in which the burst fits into image.LimitDebt. In the
// finest unit, the smallest packet at 100 Gbit/s takes 400 units. The coarsest unit allows bursts of 73 years. With a coarser unit, times of sweeps
// would not fit into 63 bits of nanoseconds.
const (
	finestUnit   = -8
	coarsestUnit = 24
)

// leastCost is the smallest cost of a packet in units. Rounding it up lowers the rate by at most a hundredth.
const leastCost = 100

// limitRate computes the cost and the burst of a limit in units. It rounds both so that no more packets pass than the limit allows.
func limitRate(l *ir.Limit) (*limitInfo, error) {
	for unit := finestUnit; unit <= coarsestUnit; unit++ {
		cost := limitCost(l, unit)
		most := ceilShift(new(big.Int).Mul(cost, new(big.Int).SetUint64(l.Burst)), image.LimitFraction)
		if most.Cmp(big.NewInt(image.LimitDebt)) > 0 {
			continue
		}
		if !l.Bits && cost.Cmp(big.NewInt(leastCost<<image.LimitFraction)) < 0 {
			return nil, fmt.Errorf("a burst of %d is too long for time to be told exactly at this rate: lower it", l.Burst)
		}
		info := &limitInfo{image.LimitInfo{Cost: cost.Uint64(), Most: most.Uint64(), Left: uint8(max(-unit, 0)), Right: uint8(max(unit, 0))}}
		info.Fresh = image.LimitDebt << info.Right >> info.Left
		if l.Bits {
			info.Bits = 1
		}
		return info, nil
	}
	return nil, fmt.Errorf("at this rate a burst of %d would take more than 73 years to be paid off", l.Burst)
}

// limitCost returns the cost of a packet or a bit in units of 2^unit ns, with image.LimitFraction bits of fraction. For packets the fraction is 0, so
// that a burst is an exact number of packets.
func limitCost(l *ir.Limit, unit int) *big.Int {
	fraction := uint(image.LimitFraction)
	if !l.Bits {
		fraction = 0
	}
	time := new(big.Int).Lsh(big.NewInt(int64(l.Per)), fraction+uint(-finestUnit))
	rate := new(big.Int).Lsh(new(big.Int).SetUint64(l.Rate), uint(unit-finestUnit))
	cost := time.Add(time, rate).Sub(time, big.NewInt(1)).Div(time, rate)
	return cost.Lsh(cost, image.LimitFraction-fraction)
}

func ceilShift(x *big.Int, n uint) *big.Int {
	return x.Rsh(x.Add(x, big.NewInt(1<<n-1)), n)
}

// byPrefix sets the masks for the addresses that the limit uses.
func (info *limitInfo) byPrefix(l *ir.Limit) {
	if l.Src != nil || l.Dst != nil {
		info.Prefixes = 1
	}
	info.Src, info.Dst = addressMasks(l.Src), addressMasks(l.Dst)
}

// addressMasks returns the masks for prefix lengths, one for each family. Masks for IPv4 are for addresses in IPv4-mapped form.
func addressMasks(p *ir.Prefixes) (masks [2]image.AddressMask) {
	if p != nil {
		masks[0], masks[1] = addressMask(96+p.V4), addressMask(p.V6)
	}
	return masks
}

func addressMask(length int) image.AddressMask {
	return image.AddressMask{Hi: ^(^uint64(0) >> min(length, 64)), Lo: ^(^uint64(0) >> max(length-64, 0))}
}

func drawLimitKeys() (k limitKeys, err error) {
	if err := binary.Read(rand.Reader, binary.NativeEndian, &k.sums); err != nil {
		return k, fmt.Errorf("random keys of limits: %w", err)
	}
	if err := binary.Read(rand.Reader, binary.NativeEndian, &k.mix); err != nil {
		return k, fmt.Errorf("random keys of limits: %w", err)
	}
	k.mix[0], k.mix[1] = k.mix[0]|1, k.mix[1]|1
	return k, nil
}

// LimitKeys returns the keys of the hash with which a program finds prefixes in the tables of its limits. ok is false if it has no limits.
func (x *Program) LimitKeys() (sums [8]uint32, mix [2]uint64, ok bool) {
	sums, ok = x.Constants["limit_keys"].([8]uint32)
	mix, _ = x.Constants["limit_mix"].([2]uint64)
	return sums, mix, ok
}

// UseLimitKeys sets the keys of the hash. It must be called with the keys of the program whose tables this program takes over.
func (x *Program) UseLimitKeys(sums [8]uint32, mix [2]uint64) {
	x.Constants["limit_keys"], x.Constants["limit_mix"] = sums, mix
}

// part returns the component with the records of the limits and their empty tables.
func (l *limits) part() component {
	if len(l.infos) == 0 {
		return component{}
	}
	n := uint32(len(l.infos))
	last := l.infos[n-1]
	shape := image.Shape{ValueSize: image.LimitInfoSize, Entries: n}
	return component{
		constants: map[string]any{"limit_keys": l.keys.sums, "limit_mix": l.keys.mix},
		shapes: map[string]image.Shape{
			image.LimitInfos: shape,
			image.Limits:     {ValueSize: image.LimitBucketSize, Entries: last.Base + last.Mask + 1},
			image.Evictions:  {ValueSize: 8, Entries: n},
		},
		fill: func(memory map[string][]byte) error {
			infos := into(memory, image.LimitInfos, shape)
			for i := range l.infos {
				if err := l.infos[i].Marshal(infos[i*image.LimitInfoSize:]); err != nil {
					return fmt.Errorf("limit %d: %w", i, err)
				}
			}
			return nil
		},
	}
}
