// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Limit is a rate with which rules compare packets. It is a token bucket, like the buckets of xt_limit, xt_hashlimit and nft_limit in the kernel
// (net/netfilter). The bucket is full at first. A packet that finds no token takes none. `over` of a policy works in the same way.
type Limit struct {
	At    Place
	What  string // name of the limit in messages: `-m limit`
	Above bool   // the rule matches packets above the limit; false: packets below the limit
	Rate  uint64 // packets, or bits, in unit
	Unit  string // s, min, h or day
	Bits  bool
	Burst uint64 // packets or bits
	Per   prefixes
	Less  string // how the rule differs from this Limit, or ""
	Table string // only for hashlimit: rules with the same table count together

	Connections uint64 // only for a limit of connections: how many connections a prefix may have open, as connlimit counts them
}

// prefixes are the prefix lengths by which addresses are counted; 0: the address is not used.
type prefixes struct{ from4, from6, to4, to6 int }

// Global reports whether l is one limit for all packets.
func (l *Limit) Global() bool { return l.Per == prefixes{} }

// Key returns a key that is equal for limits that count in the same way.
func (l *Limit) Key() string {
	if l == nil {
		return ""
	}
	return fmt.Sprint(l.Connections, l.Rate, l.Unit, l.Bits, l.Burst, l.Per.from4+l.Per.from6 > 0, l.Per.to4+l.Per.to6 > 0, l.Above)
}

// String returns l in the form of a policy.
func (l *Limit) String() string {
	unit := ""
	if l.Bits {
		unit = "bit"
	}
	words := []string{fmt.Sprintf("rate: %d%s/%s", l.Rate, unit, l.Unit)}
	if l.Connections > 0 {
		words[0] = fmt.Sprintf("connections: %d", l.Connections)
	}
	var per []string
	if l.Per.from4+l.Per.from6 > 0 {
		per = append(per, prefixWord("from", l.Per.from4, l.Per.from6))
	}
	if l.Per.to4+l.Per.to6 > 0 {
		per = append(per, prefixWord("to", l.Per.to4, l.Per.to6))
	}
	switch len(per) {
	case 1:
		words = append(words, "per: "+per[0])
	case 2:
		words = append(words, "per: ["+strings.Join(per, ", ")+"]")
	}
	if l.Connections == 0 {
		words = append(words, fmt.Sprintf("burst: %d%s", l.Burst, unit))
	}
	return "{" + strings.Join(words, ", ") + "}"
}

// FirstPackets is the remark about the difference between a limit of connections and that of a policy. It does not apply if the rule matches first
// packets only.
const FirstPackets = "it asks about every packet of a connection, and the policy about its first"

// MaxConnections is the largest number of connections that a policy's limit can have (policy.MaxConnections).
const MaxConnections = 65_535

// firstSegments are the flags of a TCP connection's first packet.
var firstSegments = FlagsWhere(func(f uint32) bool { return f&(TCPFlag["syn"]|TCPFlag["ack"]) == TCPFlag["syn"] })

// Begins reports whether a rule matches first packets of connections, possibly among others.
func (r *Rule) Begins() bool {
	return !slices.ContainsFunc(r.Alts, func(c Cond) bool { return c.Field[packet.State] != nil && !c.Field[packet.State].Has(packet.StateNew) })
}

// FirstOnly reports whether a rule matches only first packets of connections.
func (r *Rule) FirstOnly() bool {
	return !slices.ContainsFunc(r.Alts, func(c Cond) bool {
		state, flags := c.Field[packet.State], c.Field[packet.Flags]
		return (state == nil || !state.Within(Only(packet.StateNew))) && (flags == nil || !flags.Within(firstSegments))
	})
}

// prefixWord returns text such as `from/24/56`. A family without this limit gets the usual length.
func prefixWord(end string, v4, v6 int) string {
	if v4 == 0 {
		v4 = 32
	}
	if v6 == 0 {
		v6 = 64
	}
	if v6 == 64 {
		if v4 == 32 {
			return end
		}
		return fmt.Sprintf("%s/%d", end, v4)
	}
	return fmt.Sprintf("%s/%d/%d", end, v4, v6)
}

// MaxPackets is the largest rate of a policy, in packets a second.
const MaxPackets = 10_000_000

func (p prefixes) From(f Family, length int) prefixes {
	if f == IPv4 {
		p.from4 = length
	} else {
		p.from6 = length
	}
	return p
}

func (p prefixes) To(f Family, length int) prefixes {
	if f == IPv4 {
		p.to4 = length
	} else {
		p.to6 = length
	}
	return p
}

// Both merges the prefixes of a limit for IPv4 and of the same limit for IPv6.
func (p prefixes) Both(q prefixes) prefixes {
	return prefixes{max(p.from4, q.from4), max(p.from6, q.from6), max(p.to4, q.to4), max(p.to6, q.to6)}
}
