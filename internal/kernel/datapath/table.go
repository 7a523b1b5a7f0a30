// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"sync/atomic"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// Connection is a TCP connection of a protected service. IPv4 addresses are not in mapped form.
type Connection struct{ Client, Server netip.AddrPort }

// FlowState is the state of a connection in the flow table: enum flow_state of bpf/flow.h.
type FlowState uint8

// The states.
const (
	None        FlowState = iota
	Proved                // its cookie came back; the kernel may not know the connection yet
	Established           // the kernel knows the connection
	Closing               // one side has closed it
	Reopened              // a SYN passed after it was closed; the kernel may not know the new connection yet
	Doubted               // the kernel knows the connection, but a FIN or RST came with an unexpected sequence number
	Lasting               // the kernel has known the connection for more than a minute
)

// Table is the flow table of a program, mapped into memory. The program sees an added connection at once.
type Table struct {
	words  []uint64 // the buckets
	filter []uint64 // a bit for each bucket: whether it was ever used
	key    [2]uint64

	release func()
}

// The fields of a word, from the highest bit on: the upper bits of the hash, a state, and the time of the last packet
// in seconds of CLOCK_MONOTONIC.
const (
	tagShift  = 27
	seenBits  = 24
	seenMask  = 1<<seenBits - 1
	stateMask = 1<<(tagShift-seenBits) - 1
)

// New returns a table on the whole memory of two maps. words has the buckets, whose number is a power of two. filter has one bit for each bucket. key
// is the key of the hash, from struct syn_keys. Close calls release.
func New(words, filter []uint64, key [2]uint64, release func()) *Table {
	return &Table{words: words, filter: filter, key: key, release: release}
}

// Close unmaps the memory.
func (f *Table) Close() { f.release() }

// hash returns the hash of a connection: flow_hash() of bpf/flow.h. It hashes both addresses, the client's first, and both ports.
func (f *Table) hash(c Connection) uint64 {
	hash := f.key[0]
	add := func(word uint64) {
		hash = (hash ^ word) * (f.key[1] | 1)
		hash ^= hash >> 32
	}
	addHalf := func(word uint64) {
		hash = (hash ^ word) * (f.key[1] | 1)
		hash = (hash ^ hash>>29) * (f.key[0] | 1)
		hash ^= hash >> 32
	}
	client, server := c.Client.Addr(), c.Server.Addr()
	if client.Is4() {
		from, to := client.As4(), server.As4()
		add(uint64(binary.BigEndian.Uint32(from[:]))<<32 | uint64(binary.BigEndian.Uint32(to[:])))
	} else {
		for _, addr := range []netip.Addr{client, server} {
			a := addr.As16()
			addHalf(binary.BigEndian.Uint64(a[:8]))
			addHalf(binary.BigEndian.Uint64(a[8:]))
		}
	}
	add(uint64(c.Client.Port())<<16 | uint64(c.Server.Port()))
	add(0)
	return hash
}

// bucket returns the bucket for a hash, and the bucket's number.
func (f *Table) bucket(hash uint64) (words []uint64, number uint64) {
	number = hash & uint64(len(f.words)/image.FlowSlots-1)
	return f.words[number*image.FlowSlots:][:image.FlowSlots], number
}

func stateOf(word uint64) FlowState { return FlowState(word >> seenBits & stateMask) }

// State returns the state of a connection in the table.
func (f *Table) State(c Connection) FlowState {
	hash := f.hash(c)
	words, number := f.bucket(hash)
	if atomic.LoadUint64(&f.filter[number/64])>>(number%64)&1 == 0 {
		return None
	}
	for i := range words {
		if word := atomic.LoadUint64(&words[i]); (word^hash)>>tagShift == 0 && stateOf(word) != None {
			return stateOf(word)
		}
	}
	return None
}

// Add stores connections that the kernel knows, with their state. In a full bucket a connection replaces the flow with the lowest rank, as in
// bpf/flow.h.
func (f *Table) Add(list []Connection, state FlowState) {
	now := uint64(image.Monotonic().Seconds()) & seenMask
	for _, c := range list {
		hash := f.hash(c)
		words, number := f.bucket(hash)
		next := hash>>tagShift<<tagShift | uint64(state)<<seenBits | now
		for !f.put(words, hash, next, now) {
		}
		atomic.OrUint64(&f.filter[number/64], 1<<(number%64))
	}
}

// put writes a flow to its bucket. It returns false if a CPU writes the same word at that moment.
func (f *Table) put(words []uint64, hash, next, now uint64) bool {
	at, least := 0, uint64(math.MaxUint64)
	var old uint64
	for i := range words {
		word := atomic.LoadUint64(&words[i])
		worth := uint64(stateOf(word).rank())<<32 | (seenMask + 1 - (now-word)&seenMask)
		switch {
		case stateOf(word) == None:
			worth = 1
		case (word^hash)>>tagShift == 0: // the bucket already has the flow
			worth = 0
		}
		if worth < least {
			at, old, least = i, word, worth
		}
	}
	return atomic.CompareAndSwapUint64(&words[at], old, next)
}

// rank returns the rank of a state: flow_rank() of bpf/flow.h. It is 0 if the kernel may not know the flow. A flow with a higher rank stays longer in
// a full bucket.
func (s FlowState) rank() int {
	switch s {
	case Established, Doubted:
		return 1
	case Lasting:
		return 2
	}
	return 0
}

// Seconds for which a flow stays in the table after its last packet, as in bpf/flow.h: FLOW_LINGER for flows of rank 0, FLOW_LIFE for other flows.
const (
	linger = 128
	life   = 86400
)

// isOver reports whether a flow has expired, so that its word may be reused: is_over() of bpf/flow.h. A flow whose last packet came after now was
// read has not expired.
func isOver(word, now uint64) bool {
	limit := uint64(linger)
	if stateOf(word).rank() > 0 {
		limit = life
	}
	age := (now - word) & seenMask
	return age > limit && age <= seenMask/2
}

// Len returns the number of connections in the table that have not expired, and the capacity of the table.
func (f *Table) Len() (used, fit int) {
	now := uint64(image.Monotonic().Seconds()) & seenMask
	for number := range f.filter {
		for rest := atomic.LoadUint64(&f.filter[number]); rest != 0; rest &= rest - 1 {
			words, _ := f.bucket(uint64(number*64 + bits.TrailingZeros64(rest)))
			for i := range words {
				if word := atomic.LoadUint64(&words[i]); stateOf(word) != None && !isOver(word, now) {
					used++
				}
			}
		}
	}
	return used, len(f.words)
}
