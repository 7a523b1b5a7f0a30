// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"unsafe"
)

// Ends are the MAC addresses, the IP addresses and the broadcast addresses of a host.
type Ends struct {
	MACs       []net.HardwareAddr // of its devices; link-layer addresses other than Ethernet ones are ignored
	Own        []netip.Prefix
	Broadcasts []netip.Addr // IPv4
}

// The layout of struct host_ends of bpf/ends.h.
const (
	shownMACs = 4
	endMarks  = 1 << 12
	endWords  = 1 << 10
	macShift  = 15

	marksOffset  = 8 * shownMACs
	wordsOffset  = marksOffset + endMarks
	HostEndsSize = wordsOffset + 8*endWords

	broadcastWord = 1 << 49

	markOwn       = 1
	markBroadcast = 2
)

// Write writes the ends to the memory of the map HostEnds, while packets may arrive. During the write, a packet is answered according to the old or
// the new content, or it is left to the kernel. Write stores the first 1024 MAC addresses and broadcast addresses. Packets to further MAC addresses
// are left to the kernel. Further broadcast addresses are not recognized.
func (e Ends) Write(memory []byte) {
	words, shown := e.words()
	for i := range endWords {
		word := uint64(math.MaxInt64)
		if i < len(words) {
			word = words[i]
		}
		atomic.StoreUint64(word64(memory, wordsOffset+8*i), word)
	}
	marks := e.marks()
	for i := range endMarks / 8 {
		atomic.StoreUint64(word64(memory, marksOffset+8*i), binary.NativeEndian.Uint64(marks[8*i:]))
	}
	for i := range shownMACs {
		mac := uint64(math.MaxUint64) // its lower bits are not those of any MAC address
		if i < len(shown) {
			mac = shown[i] << macShift
		}
		atomic.StoreUint64(word64(memory, 8*i), mac)
	}
}

// words returns the MAC addresses and broadcast addresses as sorted words. shown has the first MAC addresses in the given order.
func (e Ends) words() (words, shown []uint64) {
	for _, mac := range e.MACs {
		if len(mac) == 6 && mac[0]&1 == 0 && len(words) < endWords {
			words = append(words, binary.NativeEndian.Uint64(append(slices.Clone(mac), 0, 0)))
		}
	}
	shown = slices.Clone(words[:min(len(words), shownMACs)])
	for _, a := range e.Broadcasts {
		if len(words) < endWords {
			bytes := a.As4()
			words = append(words, broadcastWord|uint64(binary.BigEndian.Uint32(bytes[:])))
		}
	}
	slices.Sort(words)
	return slices.Compact(words), shown
}

// marks returns a byte for each value of the last 12 bits of an address: markOwn if an own address ends with these bits, markBroadcast if a broadcast
// address does.
func (e Ends) marks() (marks [endMarks]byte) {
	mark := func(a netip.Addr, bit byte) {
		bytes := a.AsSlice()
		marks[binary.BigEndian.Uint16(bytes[len(bytes)-2:])%endMarks] |= bit
	}
	for _, p := range e.Own {
		switch {
		case p.Addr().IsLoopback():
		case p.IsSingleIP():
			mark(p.Addr(), markOwn)
		default: // the addresses of a prefix may end with any bits
			for i := range marks {
				marks[i] |= markOwn
			}
		}
	}
	for _, a := range e.Broadcasts {
		mark(a, markBroadcast)
	}
	return marks
}

// word64 returns a pointer to a word of memory that BPF programs read concurrently.
func word64(memory []byte, offset int) *uint64 {
	return (*uint64)(unsafe.Pointer(&memory[offset]))
}
