package ir

import (
	"math/big"
	"net/netip"
	"time"

	"github.com/floodwall/floodwall/internal/packet"
)

// Limiter is what the limits of a program mean: exact, with memory for every prefix. It is no part of a firewall.
type Limiter struct {
	limits []Limit
	due    map[prefixOf]*big.Int // theoretical arrival times, in units of 1/Rate ns, of 1/Rate bit times for Bits
}

type prefixOf struct {
	limit    int
	src, dst netip.Prefix
}

// NewLimiter returns a limiter that has seen no packet.
func NewLimiter(p *Program) *Limiter {
	return &Limiter{limits: p.Limits, due: map[prefixOf]*big.Int{}}
}

// Over reports whether a packet that comes now exceeds a limit. If not, the packet is charged.
func (l *Limiter) Over(limit int, pkt *packet.Packet, now time.Duration) bool {
	at := &l.limits[limit]
	key := prefixOf{limit: limit}
	if at.Src != nil {
		key.src = at.Src.Of(pkt.Src)
	}
	if at.Dst != nil {
		key.dst = at.Dst.Of(pkt.Dst)
	}
	size := int64(1)
	if at.Bits {
		size = 8 * int64(pkt.Value[packet.Length])
	}
	// All times are multiplied by Rate, so that the time of one packet or bit is Per, a whole number.
	time := product(int64(now), int64(at.Rate))
	due := l.due[key]
	if due == nil || due.Cmp(time) < 0 {
		due = time
	}
	next := new(big.Int).Add(due, product(size, int64(at.Per)))
	most := new(big.Int).Add(time, product(int64(at.Burst), int64(at.Per)))
	if next.Cmp(most) > 0 {
		return true
	}
	l.due[key] = next
	return false
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }
