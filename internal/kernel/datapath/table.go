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
	Proved                // its cookie came back; the kernel may not have the connection yet
	Established           // the kernel has it
	Closing               // one side has said that it is over
	Reopened              // a SYN passed after that; the kernel may not have the connection yet
	Doubted               // the kernel has it, but a FIN or RST came with another number than the expected one
	Lasting               // the kernel has it for longer than a minute
)

// Table is the flow table of a program, mapped into memory: a connection that is added is known at once.
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

// New is the table with the words of these maps, all of them: buckets, whose number is a power of two, and the filter, a bit for each. The key
// is that of the hash, in struct syn_keys. Close calls release.
func New(words, filter []uint64, key [2]uint64, release func()) *Table {
	return &Table{words: words, filter: filter, key: key, release: release}
}

// Close gives up the memory.
func (f *Table) Close() { f.release() }

// hash is flow_hash() of bpf/flow.h: of both addresses, that of the client first, and of both ports.
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

// bucket is where a flow can be, and its number.
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

// Add stores connections that the kernel has, with their state. In a full bucket one replaces another flow, by the rank
// in bpf/flow.h.
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

// put writes a flow to its bucket, unless a CPU writes the same word at that moment.
func (f *Table) put(words []uint64, hash, next, now uint64) bool {
	at, least := 0, uint64(math.MaxUint64)
	var old uint64
	for i := range words {
		word := atomic.LoadUint64(&words[i])
		worth := uint64(stateOf(word).rank())<<32 | (seenMask + 1 - (now-word)&seenMask)
		switch {
		case stateOf(word) == None:
			worth = 1
		case (word^hash)>>tagShift == 0: // it is there already
			worth = 0
		}
		if worth < least {
			at, old, least = i, word, worth
		}
	}
	return atomic.CompareAndSwapUint64(&words[at], old, next)
}

// rank is flow_rank() of bpf/flow.h: 0 if the kernel is not known to have the flow. A flow with a higher rank stays
// longer in a full bucket.
func (s FlowState) rank() int {
	switch s {
	case Established, Doubted:
		return 1
	case Lasting:
		return 2
	}
	return 0
}

// Seconds for which a flow stays in the table after its last packet: FLOW_LINGER for flows of rank 0, and FLOW_LIFE,
// both of bpf/flow.h.
const (
	linger = 128
	life   = 86400
)

// isOver is is_over() of bpf/flow.h: the flow has expired, and its word may be reused. A flow that was seen after now
// was read has not.
func isOver(word, now uint64) bool {
	limit := uint64(linger)
	if stateOf(word).rank() > 0 {
		limit = life
	}
	age := (now - word) & seenMask
	return age > limit && age <= seenMask/2
}

// Len returns the number of connections in the table that have not expired, and the number that fit.
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
