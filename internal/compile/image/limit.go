package image

import (
	"bytes"
	"encoding/binary"
)

// Maps of the limits, beside Limits.
const (
	LimitInfos = "limit_info" // what each limit asks for, by its number
	Evictions  = "evictions"  // per CPU and limit, the debts that were forgiven for lack of space
)

// LimitInfo is struct limit_info of bpf/limit.h: a limit's rate and table.
type LimitInfo struct {
	Cost     uint64 // of a packet or a bit, in units of time with LimitFraction bits of fraction
	Most     uint64 // debt, in units
	Fresh    uint64 // ns in which a bucket need not be swept again
	Base     uint32 // the first bucket
	Mask     uint32 // the number of buckets, a power of two, less 1
	Left     uint8  // a unit is 2^-Left ns
	Right    uint8  // or 2^Right ns
	Bits     uint8  // 1: bits of IP packets count, 0: packets
	Prefixes uint8  // 1: each prefix has a debt of its own, 0: all have one together
	_        uint32
	Src, Dst [2]AddressMask // by family
}

// AddressMask is what a limit keeps of an address, in its 128-bit form.
type AddressMask struct{ Hi, Lo uint64 }

// The layout of the tables of limits; enum in bpf/limit.h.
const (
	LimitInfoSize   = 104 // of LimitInfo in the map LimitInfos
	LimitSlots      = 7   // words of a bucket that hold debts; one more is the time of its sweep
	LimitPerBucket  = 3   // debts that a bucket may have on average, so that none is forgiven but now and then
	LimitBucketSize = 64
	LimitFraction   = 16
	LimitDebt       = 1 << 37 // the largest burst, in units
	LimitTime       = 40      // bits of a word that say when its debt is paid, and of a hash below those that choose the bucket
	LimitSureDebt   = 50_000_000

	limitTime = 1<<40 - 1 // of a word, when its debt is paid
	limitAway = 1 << 38   // units ahead at which that is no debt
)

// Marshal writes the record as the C program reads it.
func (l *LimitInfo) Marshal(to []byte) error {
	_, err := binary.Encode(to, binary.NativeEndian, l)
	return err
}

// ReadLimitInfo reads the record of one limit.
func ReadLimitInfo(from []byte) (l LimitInfo, err error) {
	err = binary.Read(bytes.NewReader(from), binary.NativeEndian, &l)
	return l, err
}

// Units is a time of CLOCK_MONOTONIC, in nanoseconds, in the units of the limit.
func (l *LimitInfo) Units(ns uint64) uint64 { return ns << l.Left >> l.Right }

// Debts counts the slots of a bucket that hold a debt at a time in nanoseconds.
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
