package datapath

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/floodwall/floodwall/internal/xdp"
)

// Connection is a TCP connection of a protected service. IPv4 addresses are not in mapped form.
type Connection struct{ Client, Server netip.AddrPort }

// FlowState is the state of a connection in the flow table: enum flow_state of bpf/flow.h.
type FlowState uint8

// The states.
const (
	FlowNone        FlowState = iota
	FlowProved                // its cookie came back; the kernel may not have the connection yet
	FlowEstablished           // the kernel has it
	FlowClosing               // one side has said that it is over
	FlowReopened              // a SYN passed after that; the kernel may not have the connection yet
	FlowLasting     = 6       // the kernel has it for longer than a minute
)

// Flows is the flow table of a program, mapped into memory: a connection that is added is known at once. bpf/flow.h
// describes its layout.
type Flows struct {
	words  []uint64 // the buckets
	filter []uint64 // a bit for each bucket: whether it was ever used
	key    [2]uint64

	release func()
}

// The fields of a word, from the highest bit on: the upper bits of the hash, a state, and the time of the last packet
// in seconds of CLOCK_MONOTONIC.
const (
	flowTagShift  = 27
	flowSeenBits  = 24
	flowSeenMask  = 1<<flowSeenBits - 1
	flowStateMask = 1<<(flowTagShift-flowSeenBits) - 1
)

// Flows maps the program's table, until Close; nil when it protects nothing.
func (p *Program) Flows() (*Flows, error) {
	memory, release, err := p.Memory(xdp.Flows, xdp.FlowFilter, xdp.SynKeys)
	if err != nil {
		return nil, err
	}
	return newFlows(memory, release), nil
}

// Flows maps the generation's table, until the generation is closed; nil when it protects nothing.
func (g *Generation) Flows() (*Flows, error) {
	memory, err := g.Memory(xdp.Flows, xdp.FlowFilter, xdp.SynKeys)
	if err != nil {
		return nil, err
	}
	return newFlows(memory, func() {}), nil
}

func newFlows(memory map[string][]byte, release func()) *Flows {
	table, keys := memory[xdp.Flows], memory[xdp.SynKeys]
	if table == nil || keys == nil {
		release()
		return nil
	}
	return &Flows{
		words: wordsOf(table), filter: wordsOf(memory[xdp.FlowFilter]), key: readKeys(keys).hash, release: release,
	}
}

// wordsOf is memory of a map as words.
func wordsOf(memory []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/8)
}

// Close gives up the memory.
func (f *Flows) Close() { f.release() }

// hash is flow_hash() of bpf/flow.h: of both addresses, that of the client first, and of both ports.
func (f *Flows) hash(c Connection) uint64 {
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
func (f *Flows) bucket(hash uint64) (words []uint64, number uint64) {
	number = hash & uint64(len(f.words)/xdp.FlowSlots-1)
	return f.words[number*xdp.FlowSlots:][:xdp.FlowSlots], number
}

func flowState(word uint64) FlowState { return FlowState(word >> flowSeenBits & flowStateMask) }

// State returns the state of a connection in the table.
func (f *Flows) State(c Connection) FlowState {
	hash := f.hash(c)
	words, number := f.bucket(hash)
	if atomic.LoadUint64(&f.filter[number/64])>>(number%64)&1 == 0 {
		return FlowNone
	}
	for i := range words {
		if word := atomic.LoadUint64(&words[i]); (word^hash)>>flowTagShift == 0 && flowState(word) != FlowNone {
			return flowState(word)
		}
	}
	return FlowNone
}

// Add stores connections that the kernel has, with their state. In a full bucket one replaces another flow, by the rank
// in bpf/flow.h.
func (f *Flows) Add(list []Connection, state FlowState) {
	now := uint64(monotonic().Seconds()) & flowSeenMask
	for _, c := range list {
		hash := f.hash(c)
		words, number := f.bucket(hash)
		next := hash>>flowTagShift<<flowTagShift | uint64(state)<<flowSeenBits | now
		for !f.put(words, hash, next, now) {
		}
		atomic.OrUint64(&f.filter[number/64], 1<<(number%64))
	}
}

// put writes a flow to its bucket, unless a CPU writes the same word at that moment.
func (f *Flows) put(words []uint64, hash, next, now uint64) bool {
	at, least := 0, uint64(math.MaxUint64)
	var old uint64
	for i := range words {
		word := atomic.LoadUint64(&words[i])
		worth := uint64(flowState(word).rank())<<32 | (flowSeenMask + 1 - (now-word)&flowSeenMask)
		switch {
		case flowState(word) == FlowNone:
			worth = 1
		case (word^hash)>>flowTagShift == 0: // it is there already
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
	case FlowEstablished:
		return 1
	case FlowLasting:
		return 2
	}
	return 0
}

// Seconds for which a flow stays in the table after its last packet: FLOW_LINGER for flows of rank 0, and FLOW_LIFE,
// both of bpf/flow.h.
const (
	flowLinger = 128
	flowLife   = 86400
)

// isOver is is_over() of bpf/flow.h: the flow has expired, and its word may be reused. A flow that was seen after now
// was read has not.
func isOver(word, now uint64) bool {
	life := uint64(flowLinger)
	if flowState(word).rank() > 0 {
		life = flowLife
	}
	age := (now - word) & flowSeenMask
	return age > life && age <= flowSeenMask/2
}

// Len returns the number of connections in the table that have not expired, and the number that fit.
func (f *Flows) Len() (used, fit int) {
	now := uint64(monotonic().Seconds()) & flowSeenMask
	for number := range f.filter {
		for rest := atomic.LoadUint64(&f.filter[number]); rest != 0; rest &= rest - 1 {
			words, _ := f.bucket(uint64(number*64 + bits.TrailingZeros64(rest)))
			for i := range words {
				if word := atomic.LoadUint64(&words[i]); flowState(word) != FlowNone && !isOver(word, now) {
					used++
				}
			}
		}
	}
	return used, len(f.words)
}
