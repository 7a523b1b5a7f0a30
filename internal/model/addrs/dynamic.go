// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"unsafe"
)

// The memory of dynamic sets, in bytes.
const (
	DynamicInfoBytes = 64       // per set
	WhyTextsBytes    = 256 * 64 // per policy
	WhyBytes         = 4        // per bucket
)

// Errors of DynamicSet.Insert.
var (
	ErrFull    = errors.New("the set is full")
	ErrLengths = errors.New("memory of an earlier format has 8 other prefix lengths of one family already")
)

// DynamicMemory is the memory of all dynamic sets of a policy. Info and Buckets are BPF arrays that a BPF program
// reads while they change. Only user space reads Texts and Why. Info has a record for each set:
//
//	0   u64 seed         of the hash
//	8   u32 base         first bucket
//	12  u32 mask         number of buckets - 1
//	16  u32 capacity     in entries; 0 after the last set
//	20  u32 entries      a hint: it also counts expired entries whose slots are not reused yet
//	24  zeros            in earlier formats: see earlier.go
//
// IPv4 prefixes are stored as ::ffff:a.b.c.d/96+n. An entry's meta is its expiry as a second of CLOCK_MONOTONIC, or 0
// if it never expires. Why has four bytes per bucket. The first three belong to one slot each, and give the number of
// the reason's 64 bytes in Texts; 0 means no reason. The fourth byte has a bit for each slot whose entry is
// automatic.
type DynamicMemory struct {
	Info    []byte
	Buckets []byte
	Texts   []byte
	Why     []byte
	Own     []byte // for Dynamic.ShowOwn; it is not used if it is shorter than OwnBytes
	Marks   []byte // see MarkBytes; it is not used if it is shorter
	Lengths []byte // see LengthsBytes; it is empty if the memory has an earlier format
}

// DynamicBuckets returns the number of buckets for a set of the given capacity. A bucket then has at most one entry
// on average. A set with fewer buckets would refuse entries before it is full. With this number, 8 buckets in a row
// have no free slot with a probability of 2^-18 at each place. makeSpace fails only if another 7 buckets after them
// have none either, with a probability of 2^-33.
func DynamicBuckets(capacity int) int { return bucketsFor(capacity, 1.0/bucketSlots) }

// NewDynamicMemory allocates memory for sets of these capacities. The datapath uses mapped BPF arrays instead.
func NewDynamicMemory(capacities ...int) DynamicMemory {
	buckets := 0
	for _, capacity := range capacities {
		buckets += DynamicBuckets(capacity)
	}
	return DynamicMemory{
		Info:    make([]byte, DynamicInfoBytes*len(capacities)),
		Buckets: make([]byte, BucketBytes*buckets),
		Texts:   make([]byte, WhyTextsBytes),
		Why:     make([]byte, WhyBytes*buckets),
		Lengths: make([]byte, LengthsBytes(len(capacities))),
	}
}

// Format writes the records of empty sets of these capacities to memory that holds zeros.
func (m DynamicMemory) Format(capacities ...int) error {
	if err := m.check(); err != nil {
		return err
	}
	if have := len(m.Info) / DynamicInfoBytes; have < len(capacities) {
		return fmt.Errorf("memory of dynamic sets has space for %d records, %d are needed", have, len(capacities))
	}
	base := 0
	for i, capacity := range capacities {
		size := DynamicBuckets(capacity)
		if have := len(m.Buckets) / BucketBytes; have < base+size {
			return fmt.Errorf("memory of dynamic sets has %d buckets, at least %d are needed", have, base+size)
		}
		info := m.Info[i*DynamicInfoBytes:]
		native.PutUint64(info[infoSeed:], rand.Uint64())
		native.PutUint32(info[infoBase:], uint32(base))
		native.PutUint32(info[infoMask:], uint32(size-1))
		native.PutUint32(info[infoCapacity:], uint32(capacity))
		base += size
	}
	return nil
}

func (m DynamicMemory) check() error {
	for _, part := range [][]byte{m.Info, m.Buckets, m.Own, m.Marks, m.Lengths} {
		if uintptr(unsafe.Pointer(unsafe.SliceData(part)))%8 != 0 {
			return errors.New("memory of dynamic sets is not aligned to 8 bytes")
		}
	}
	if len(m.Texts) < WhyTextsBytes || len(m.Why)/WhyBytes < len(m.Buckets)/BucketBytes {
		return errors.New("memory for the reasons of dynamic sets is too small")
	}
	return nil
}

// Dynamic is the dynamic sets of a policy. A process that changes them must be the only writer while its Dynamic is in use. After another process may
// have changed the sets, it must open a new Dynamic.
type Dynamic struct {
	Sets []*DynamicSet
	own  []byte
}

// OpenDynamic opens formatted memory, whatever state its last writer left it in.
func OpenDynamic(m DynamicMemory) (*Dynamic, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	d := Dynamic{own: m.Own}
	for info := m.Info; len(info) >= DynamicInfoBytes; info = info[DynamicInfoBytes:] {
		s := &DynamicSet{info: info[:DynamicInfoBytes], marks: m.Marks, number: len(d.Sets)}
		if s.Capacity() == 0 {
			break
		}
		if len(m.Lengths) > 0 {
			if len(m.Lengths) < LengthsBytes(s.number+1) {
				return nil, errors.New("memory for the prefix lengths of dynamic sets is too small")
			}
			s.lengths = m.Lengths[LengthsBytes(1)*s.number:][:LengthsBytes(1)]
		}
		base, size := int(s.word(infoBase)), int(s.word(infoMask))+1
		if size&(size-1) != 0 || len(m.Buckets) < (base+size)*BucketBytes {
			return nil, fmt.Errorf("record %d of the dynamic sets is damaged", len(d.Sets))
		}
		s.buckets = buckets{m.Buckets[base*BucketBytes:][:size*BucketBytes], native.Uint64(info[infoSeed:]), uint32(size - 1)}
		s.why = m.Why[base*WhyBytes:][:size*WhyBytes]
		d.Sets = append(d.Sets, s)
	}
	reasons := newReasons(m.Texts, d.Sets)
	for _, s := range d.Sets {
		s.reasons = reasons
	}
	return &d, nil
}

// Offsets within the record of a set.
const (
	infoSeed     = 0
	infoBase     = 8
	infoMask     = 12
	infoCapacity = 16
	infoEntries  = 20
)

func (s *DynamicSet) word(at int) uint32 { return atomic.LoadUint32(word32(s.info, at)) }

func (s *DynamicSet) setEntries(n uint32) { atomic.StoreUint32(word32(s.info, infoEntries), n) }

// dynamicKey returns a prefix in the form in which the sets store it.
func dynamicKey(p netip.Prefix) (prefix6, error) {
	switch a := p.Addr(); {
	case !p.IsValid():
		return prefix6{}, errors.New("invalid prefix")
	case a.Is4():
		return mapped(a).cut(uint8(96 + p.Bits())), nil
	case a.Is4In6() && p.Bits() >= 96:
		return prefix6{}, fmt.Errorf("%s stands for IPv4 addresses: write them as IPv4", p)
	default:
		return prefix6From(a, p.Bits()), nil
	}
}

// mapped returns the IPv4 address as ::ffff:a.b.c.d.
func mapped(a netip.Addr) prefix6 { return prefix6{0, 0xffff<<32 | uint64(number4(a)), 128} }

// family returns 0 for a stored IPv4 prefix, and 1 for an IPv6 prefix.
func (p prefix6) family() int {
	if p.length >= 96 && p.hi == 0 && p.lo>>32 == 0xffff {
		return 0
	}
	return 1
}

// unmapped returns the prefix in its original form; it is the inverse of dynamicKey.
func (p prefix6) unmapped() netip.Prefix {
	if p.family() == 0 {
		return netip.PrefixFrom(addr4(uint32(p.lo)), int(p.length)-96)
	}
	return p.netip()
}
