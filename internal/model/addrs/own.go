package addrs

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
)

// The memory DynamicMemory.Own: addresses in network order, as a frame has them. 0 stands for none.
//
//	0   u32 own4[OwnIPv4]
//	16  u64 own6[OwnIPv6][2]  the upper half first; where that is 0, there is none
//
// Every address there is an entry, without an end, of the set of the host's own addresses. The program compares with them before it
// looks that set up, which costs 30 times as many instructions.
const (
	OwnIPv4     = 4
	OwnIPv6     = 3
	OwnIPv6From = 4 * OwnIPv4
	OwnBytes    = OwnIPv6From + 16*OwnIPv6
)

// ShowOwn says which entries of the host's own addresses the program is to compare with first: as many addresses of the list as there is space
// for, but for those of loopback. Before an entry is deleted it must be missing from the list. It has no effect on memory of
// earlier formats, which has no space for any.
func (d *Dynamic) ShowOwn(list []netip.Prefix) {
	if len(d.own) < OwnBytes {
		return
	}
	var four [OwnIPv4]uint32
	var six [OwnIPv6][2]uint64
	fours, sixes := 0, 0
	for _, p := range list {
		a := p.Addr()
		bytes := a.AsSlice()
		switch {
		case a.IsLoopback() || !p.IsSingleIP():
		case a.Is4() && fours < OwnIPv4:
			four[fours] = binary.NativeEndian.Uint32(bytes)
			fours++
		case a.Is6() && sixes < OwnIPv6:
			six[sixes] = [2]uint64{binary.NativeEndian.Uint64(bytes), binary.NativeEndian.Uint64(bytes[8:])}
			sixes++
		}
	}
	for i, a := range four {
		atomic.StoreUint32(word32(d.own, 4*i), a)
	}
	for i, a := range six {
		showOwn6(word64(d.own, OwnIPv6From+16*i), word64(d.own, OwnIPv6From+16*i+8), a)
	}
}

// showOwn6 writes an address of two words. A reader must not find one half of the address that was there before: so there is none
// in between.
func showOwn6(hi, lo *uint64, a [2]uint64) {
	if *hi == a[0] && *lo == a[1] {
		return
	}
	atomic.StoreUint64(hi, 0)
	atomic.StoreUint64(lo, a[1])
	atomic.StoreUint64(hi, a[0])
}
