// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"
	"net/netip"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// nftDefaultBurst is the burst in packets of a limit that does not set one (NFT_LIMIT_PKT_BURST_DEFAULT of
// net/netfilter/nft_limit.c).
const nftDefaultBurst = 5

// units are the policy's words for the time units of a rate.
var units = map[string]string{"second": "s", "minute": "min", "hour": "h", "day": "day"}

// bytesOf are the units of a limit in bytes, as numbers of bytes (statement.c of nft).
var bytesOf = map[string]uint64{"bytes": 1, "kbytes": 1 << 10, "mbytes": 1 << 20}

// limit reads a limit that counts all packets together.
func (r *nftRuleReader) limit(body any) {
	l := r.limitOf(body)
	if l == nil || r.limited {
		r.unknown("limit")
		return
	}
	r.limited = true
	r.rule.Narrow([]Cond{{Limit: l}})
}

// limitOf reads a limit. It returns nil if there is no equal. For a limit in bytes, nft adds the bytes of one time unit to the
// burst (nft_limit.c of the kernel).
func (r *nftRuleReader) limitOf(body any) *Limit {
	whole := func(key string) (n uint64) {
		if x, ok := member(body, key).(float64); ok && x > 0 && x == float64(uint64(x)) {
			n = uint64(x)
		}
		return n
	}
	per, _ := member(body, "per").(string)
	rateUnit, _ := member(body, "rate_unit").(string)
	burstUnit, _ := member(body, "burst_unit").(string)
	above, _ := member(body, "inv").(bool)
	l := &Limit{At: r.rule.At, What: "limit", Above: above, Rate: whole("rate"), Unit: units[per], Burst: whole("burst")}
	if each, ok := bytesOf[rateUnit]; ok {
		l.Bits, l.Rate = true, l.Rate*each*8
		l.Burst = l.Rate + l.Burst*max(bytesOf[burstUnit], 1)*8
		if l.Unit == "" || l.Rate == 0 || l.Burst < leastBits || l.Rate > mostBits || l.Burst > mostBits {
			return nil
		}
		return l
	}
	if l.Burst == 0 {
		l.Burst = nftDefaultBurst
	}
	if rateUnit != "" && rateUnit != "packets" || l.Rate == 0 || l.Rate > MaxPackets || l.Unit == "" {
		return nil
	}
	return l
}

// The smallest burst in bits that a policy can have, and the largest rate or burst that is accepted.
const (
	leastBits = 8 * 1500
	mostBits  = 100_000_000_000
)

// connections reads a limit of connections. It returns nil if there is no equal. The count includes the packet's own connection
// (nft_connlimit.c of the kernel).
func (r *nftRuleReader) connections(body any) *Limit {
	n, _ := member(body, "val").(float64)
	above, _ := member(body, "inv").(bool)
	if n < 1 || n > MaxConnections || n != float64(uint64(n)) || !r.rule.Begins() {
		return nil
	}
	l := &Limit{At: r.rule.At, Above: above, Connections: uint64(n)}
	if !r.rule.FirstOnly() {
		l.Less = FirstPackets
	}
	return l
}

// metered reads a limit for each address: `meter`, or `add @set { … limit … }`. The key is one address, or both the source and
// the destination address.
func (r *nftRuleReader) metered(key, body any) {
	key, _ = element(key)
	statements, ok := body.([]any)
	if one, is := body.(map[string]any); is {
		statements, ok = []any{one}, true
	}
	var l *Limit
	for _, s := range statements {
		switch {
		case member(s, "counter") != nil:
		case member(s, "limit") != nil && l == nil:
			if l = r.limitOf(member(s, "limit")); l == nil {
				ok = false
			}
		case member(s, "ct count") != nil && l == nil:
			if l = r.connections(member(s, "ct count")); l == nil {
				ok = false
			}
		default:
			ok = false
		}
	}
	parts, many := member(key, "concat").([]any)
	if !many {
		parts = []any{key}
	}
	if !ok || l == nil || r.limited {
		r.unknown("a limit for each address")
		return
	}
	if l.What = "a limit for each address"; l.Connections > 0 {
		l.What = "a limit of connections"
	}
	var families Cond
	for _, p := range parts {
		if !r.meteredPart(l, p, &families) {
			r.unknown("a limit for each " + expression(p))
			return
		}
	}
	r.limited = true
	families.Limit = l
	r.rule.Narrow([]Cond{families})
}

// meteredPart reads a part of a meter's key. It is an address, which may be cut to a prefix, or a port for which the rule
// allows only one value.
func (r *nftRuleReader) meteredPart(l *Limit, part any, c *Cond) bool {
	length := -1
	if and, ok := member(part, "&").([]any); ok && len(and) == 2 {
		mask, isText := and[1].(string)
		a, err := netip.ParseAddr(mask)
		if !isText || err != nil {
			return false
		}
		n, whole := MaskLength(a)
		if part, length = and[0], int(n); !whole || n == 0 {
			return false
		}
	}
	p, _ := member(part, "payload").(map[string]any)
	of := func(f Family, number uint32, full int) bool {
		*c = c.With(packet.Family, Only(number))
		if length < 0 {
			length = full
		}
		if p["field"] == "saddr" {
			l.Per = l.Per.From(f, length)
		} else {
			l.Per = l.Per.To(f, length)
		}
		return true
	}
	switch fmt.Sprintf("%v %v", p["protocol"], p["field"]) {
	case "ip saddr", "ip daddr":
		return of(IPv4, packet.FamilyIPv4, 32)
	case "ip6 saddr", "ip6 daddr":
		return of(IPv6, packet.FamilyIPv6, 128)
	case "tcp dport", "udp dport", "th dport":
		for _, a := range r.rule.Alts {
			if v := a.Field[packet.DPort]; v == nil || v.Count() != 1 {
				return false
			}
		}
		return true
	}
	return false
}

// behindLimit records that a rule has another test after its limit. The limit has already counted the packets that do not pass
// this test.
func (r *nftRuleReader) behindLimit() {
	for _, c := range r.rule.Alts {
		if r.limited && c.Limit != nil {
			c.Limit.Less = "the limit stands before another test of the rule and counts packets that this leaves out, too: the policy does not"
		}
	}
}
