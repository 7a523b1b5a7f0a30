// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
)

// The memory DynamicMemory.Own holds addresses in network order, as in a frame. 0 means that there is no address.
//
//	0   u32 own4[OwnIPv4]
//	16  u64 own6[OwnIPv6][2]  the upper half first; if it is 0, there is no address
//
// Every address there is also an entry, without an expiry, of the set of the host's own addresses. The BPF program compares an address with
// this memory before it looks it up in that set, which takes 30 times as many instructions.
const (
	OwnIPv4     = 4
	OwnIPv6     = 3
	OwnIPv6From = 4 * OwnIPv4
	OwnBytes    = OwnIPv6From + 16*OwnIPv6
)

// ShowOwn chooses the own addresses with which the BPF program compares first. It takes them from the list, as many as fit, without loopback
// addresses. Before a caller deletes an entry, it must call ShowOwn with a list without this entry. ShowOwn has no effect on memory of earlier
// formats, because these have no space for addresses.
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

// showOwn6 writes an address as two words. A reader must not combine one half of the old address with the other half of the new one. So the
// upper half is 0, which means no address, while the lower half changes.
func showOwn6(hi, lo *uint64, a [2]uint64) {
	if *hi == a[0] && *lo == a[1] {
		return
	}
	atomic.StoreUint64(hi, 0)
	atomic.StoreUint64(lo, a[1])
	atomic.StoreUint64(hi, a[0])
}
