// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"math/big"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Limiter defines the meaning of a program's limits. It is exact, and has memory for every prefix. It is used in tests and simulation, and is not
// part of a firewall.
//
// For each prefix it keeps the theoretical arrival time (ITU-T I.371): the time at which the rate has paid off all charges of the prefix. A packet
// conforms if this time, with the packet's own charge, is ahead of the present by no more than the burst allows.
type Limiter struct {
	limits []Limit
	floods []Flood
	due    map[prefixPair]*big.Int // theoretical arrival times, in nanoseconds times the limit's Rate
	until  map[int]time.Duration   // the end of each flood
}

// prefixPair is the key of a limit's counter. A prefix that the limit does not use has the zero value.
type prefixPair struct {
	limit    int
	src, dst netip.Prefix
}

// NewLimiter returns a limiter without any charges.
func NewLimiter(p *Program) *Limiter {
	return &Limiter{limits: p.Limits, floods: p.Floods, due: map[prefixPair]*big.Int{}, until: map[int]time.Duration{}}
}

// Over reports whether a packet exceeds the limit with this index in Program.Limits. If it does not, the packet is charged. at is the time since any
// fixed start. It must not decrease from call to call.
func (l *Limiter) Over(limit int, pkt *packet.Packet, at time.Duration) bool {
	due, over := l.charged(limit, pkt, at, 1)
	if !over {
		l.due[l.limits[limit].key(limit, pkt)] = due
	}
	return over
}

// Full does the same as Over, but charges nothing.
func (l *Limiter) Full(limit int, pkt *packet.Packet, at time.Duration) bool {
	_, over := l.charged(limit, pkt, at, 1)
	return over
}

// Spent reports whether the packet would use more than half of the burst, not counting the packet's own charge. It charges nothing. The other half is
// reserved for repeated packets.
func (l *Limiter) Spent(limit int, pkt *packet.Packet, at time.Duration) bool {
	_, over := l.charged(limit, pkt, at, 2)
	return over
}

// Calm reports whether there is no flood when a packet from an unknown client arrives. flood is an index in Program.Floods. Calm charges the packet,
// unless the flood lasts at least nine more seconds in any case.
func (l *Limiter) Calm(flood int, pkt *packet.Packet, at time.Duration) bool {
	const renew = time.Second
	f, until := &l.floods[flood], l.until[flood]
	if until > at+FloodTime-renew {
		return false
	}
	limit := f.Start
	if until > at {
		limit = f.Stop
	}
	if !l.Over(limit, pkt, at) {
		return until <= at
	}
	l.until[flood] = at + FloodTime
	return false
}

// Floods reports whether the flood with this index in Program.Floods is going on.
func (l *Limiter) Floods(flood int, at time.Duration) bool { return l.until[flood] > at }

// charged returns the theoretical arrival time of a packet's prefix after a charge for the packet, and whether this exceeds the limit. The packet may
// use the burst for its own charge, and one part in parts of the rest of the burst.
func (l *Limiter) charged(limit int, pkt *packet.Packet, at time.Duration, parts int64) (*big.Int, bool) {
	of := &l.limits[limit]
	key := of.key(limit, pkt)
	// Times are multiplied by the rate, so that one packet or bit costs Per, a whole number.
	now := product(uint64(at), of.Rate)
	due := l.due[key]
	if due == nil || due.Cmp(now) < 0 {
		due = now
	}
	cost, most := product(of.charge(pkt), uint64(of.Per)), product(of.Burst, uint64(of.Per))
	if most.Cmp(cost) > 0 {
		most = new(big.Int).Add(cost, new(big.Int).Quo(new(big.Int).Sub(most, cost), big.NewInt(parts)))
	}
	due = new(big.Int).Add(due, cost)
	return due, due.Cmp(new(big.Int).Add(now, most)) > 0
}

func (l *Limit) key(number int, pkt *packet.Packet) prefixPair {
	key := prefixPair{limit: number}
	if l.Src != nil {
		key.src = l.Src.Of(pkt.Src)
	}
	if l.Dst != nil {
		key.dst = l.Dst.Of(pkt.Dst)
	}
	return key
}

// charge returns the charge for a packet, in packets or bits.
func (l *Limit) charge(pkt *packet.Packet) uint64 {
	if l.Bits {
		return 8 * uint64(pkt.Value[packet.Length])
	}
	return 1
}

func product(a, b uint64) *big.Int {
	return new(big.Int).Mul(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
}
