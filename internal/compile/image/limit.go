// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/binary"
)

// Maps of the limits, in addition to Limits.
const (
	LimitInfos = "limit_info" // the parameters of each limit, by its number
	Evictions  = "evictions"  // for each CPU and limit: the number of debts that were discarded because their bucket was full
)

// LimitInfo is the record of a limit: its rate and its table. It is struct limit_info of bpf/limit.h.
type LimitInfo struct {
	Cost     uint64 // the cost of a packet or a bit, in units of time with LimitFraction bits of fraction
	Most     uint64 // the largest debt, in units
	Fresh    uint64 // the time in ns for which a swept bucket need not be swept again
	Base     uint32 // the first bucket
	Mask     uint32 // the number of buckets, a power of two, minus 1
	Left     uint8  // a unit is 2^-Left ns
	Right    uint8  // or, if Right is not 0, 2^Right ns
	Bits     uint8  // 1: the limit counts bits of IP packets; 0: packets
	Prefixes uint8  // 1: each prefix has its own debt, 0: all packets share one
	_        uint32
	Src, Dst [2]AddressMask // for each family
}

// AddressMask is the mask for the part of an address that a limit uses. Addresses are in 128-bit form.
type AddressMask struct{ Hi, Lo uint64 }

// The layout of the tables of limits, as in an enum in bpf/limit.h.
const (
	LimitInfoSize   = 104 // of LimitInfo in the map LimitInfos
	LimitSlots      = 7   // words of a bucket that hold debts; one more word holds the time of the last sweep
	LimitPerBucket  = 3   // the average number of debts per bucket at which debts are rarely discarded
	LimitBucketSize = 64
	LimitFraction   = 16
	LimitDebt       = 1 << 37 // the largest burst, in units
	LimitTime       = 40      // bits of a word for the time at which its debt is paid; also the bits of a hash below those that select the bucket
	LimitSureDebt   = 50_000_000

	limitTime = 1<<40 - 1 // the bits of a word for the time at which its debt is paid
	limitAway = 1 << 38   // a time that is at least this many units ahead is not a debt
)

// Marshal writes the record in the format of the C program.
func (l *LimitInfo) Marshal(to []byte) error {
	_, err := binary.Encode(to, binary.NativeEndian, l)
	return err
}

// ReadLimitInfo reads the record of one limit.
func ReadLimitInfo(from []byte) (l LimitInfo, err error) {
	err = binary.Read(bytes.NewReader(from), binary.NativeEndian, &l)
	return l, err
}

// Units converts a time of CLOCK_MONOTONIC from nanoseconds to the units of the limit.
func (l *LimitInfo) Units(ns uint64) uint64 { return ns << l.Left >> l.Right }

// Debts returns the number of slots of a bucket that hold a debt at the time ns, in nanoseconds.
func (l *LimitInfo) Debts(bucket []byte, ns uint64) int {
	word := func(i int) uint64 { return binary.NativeEndian.Uint64(bucket[8*i:]) }
	if age := int64(ns - word(LimitSlots)); age > 2*int64(l.Fresh) {
		return 0
	}
	n, now := 0, l.Units(ns)
	for i := range LimitSlots {
		if ahead := (word(i) - now) & limitTime; word(i) != 0 && ahead != 0 && ahead < limitAway {
			n++
		}
	}
	return n
}
