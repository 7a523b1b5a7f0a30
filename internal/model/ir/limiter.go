package ir

import (
	"math/big"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Limiter is what the limits of a program mean: exact, and with memory for every prefix. It is no part of a firewall.
//
// It keeps the theoretical arrival time of each prefix (ITU-T I.371): when all that it was charged with has been paid off
// at the rate. A packet conforms when its own charge would bring that no farther ahead of now than the burst takes.
type Limiter struct {
	limits []Limit
	floods []Flood
	due    map[prefixPair]*big.Int // theoretical arrival times, in nanoseconds times the limit's Rate
	until  map[int]time.Duration   // of each flood: when it ends
}

// prefixPair is what one limit counts together. A prefix that does not count is the zero value.
type prefixPair struct {
	limit    int
	src, dst netip.Prefix
}

// NewLimiter returns a limiter that has seen no packet.
func NewLimiter(p *Program) *Limiter {
	return &Limiter{limits: p.Limits, floods: p.Floods, due: map[prefixPair]*big.Int{}, until: map[int]time.Duration{}}
}

// Over reports whether a packet that comes at a time exceeds a limit, by its index in Program.Limits. If not, the packet
// is charged. at counts from anywhere before, and does not go back.
func (l *Limiter) Over(limit int, pkt *packet.Packet, at time.Duration) bool {
	due, over := l.charged(limit, pkt, at)
	if !over {
		l.due[l.limits[limit].key(limit, pkt)] = due
	}
	return over
}

// Spent is Over without a charge.
func (l *Limiter) Spent(limit int, pkt *packet.Packet, at time.Duration) bool {
	_, over := l.charged(limit, pkt, at)
	return over
}

// Calm reports whether there is no flood, by its index in Program.Floods, when a packet of no known client comes. While one will surely last
// for another nine seconds, the packet is not charged.
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

// charged is the theoretical arrival time of a packet's prefix with the packet, and whether that exceeds the limit.
func (l *Limiter) charged(limit int, pkt *packet.Packet, at time.Duration) (*big.Int, bool) {
	of := &l.limits[limit]
	key := of.key(limit, pkt)
	// Times the rate, so that what one packet or bit takes is Per, a whole number.
	now := product(uint64(at), of.Rate)
	due := l.due[key]
	if due == nil || due.Cmp(now) < 0 {
		due = now
	}
	due = new(big.Int).Add(due, product(of.charge(pkt), uint64(of.Per)))
	return due, due.Cmp(new(big.Int).Add(now, product(of.Burst, uint64(of.Per)))) > 0
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

// charge is what a packet counts for, in packets or bits.
func (l *Limit) charge(pkt *packet.Packet) uint64 {
	if l.Bits {
		return 8 * uint64(pkt.Value[packet.Length])
	}
	return 1
}

func product(a, b uint64) *big.Int {
	return new(big.Int).Mul(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
}
