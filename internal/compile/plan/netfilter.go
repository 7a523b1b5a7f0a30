// This file has what the code generators for nftables and iptables share: what a check or a protection becomes in either, and how many
// prefixes a limit holds.

package plan

import (
	"cmp"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// DiffersForwarded reports whether a rule at filter differs for packets for this host and those on their way through: the kernel
// lowers the TTL of these before the hook (net/ipv4/ip_forward.c, net/ipv6/ip6_output.c), and their destination is none of
// the host's own addresses.
func DiffersForwarded(pl *Plan, r *ir.Rule) bool {
	return TestsTTL(r) || slices.ContainsFunc(r.Dst, func(m ir.AddrMatch) bool { return match.HasLocal(pl.Program.Sets, m) })
}

// TestsTTL reports whether a rule asks for the TTL.
func TestsTTL(r *ir.Rule) bool {
	return slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.TTL })
}

// HeldPrefixes are how many prefixes a limit with this max has space for on netfilter, where entries take memory only when they are used.
func HeldPrefixes(limit int) int {
	const usual = 1 << 17
	return cmp.Or(limit, usual)
}

// ProxyCounters name the counters of a protection whose connections begin at SYNPROXY.
type ProxyCounters struct {
	Proxied string // what was given to it: SYNs, unless XDP answers them, and the packets that come back
	Invalid string // what belongs to no connection and is not for it
}

// HandshakeOf is what is known of a protection.
func HandshakeOf(pl *Plan, protect []ir.Handshake, number int) ir.Handshake {
	if number <= len(protect) {
		return protect[number-1]
	}
	return ir.UsualHandshake(&pl.Program.Protections[number-1], 0)
}

// LeftCheck is a check that a policy enables and a target does not do.
type LeftCheck struct {
	Check packet.Check
	Why   string // why the target cannot, and what the kernel does about such packets itself
}

// ProtosWithout are the protocols of a that are not in b.
func ProtosWithout(a, b []ir.Range) []ir.Range {
	return ranges.Common(a, ranges.Complement(b, packet.Proto.Size()), packet.Proto.Size())
}

// Addresses takes the addresses out of ranges that do not overlap. A hash of addresses alone is faster to make and to ask than what holds
// ranges, so ranges of a few neighbours are written out, unless they were to double the list.
func Addresses(list []netipx.IPRange) (addresses, ranges []netipx.IPRange) {
	const few = 8
	written := 0
	for _, r := range list {
		written += upTo(r, few)
	}
	most := few
	if written > 2*len(list) {
		most = 1
	}
	for _, r := range list {
		n := upTo(r, most)
		if n == 0 {
			ranges = append(ranges, r)
		}
		for a := r.From(); n > 0; a, n = a.Next(), n-1 {
			addresses = append(addresses, netipx.IPRangeFrom(a, a))
		}
	}
	return addresses, ranges
}

// upTo is how many addresses a range has, 0 when it has more than so many.
func upTo(r netipx.IPRange, most int) int {
	n := 1
	for a := r.From(); a != r.To(); a = a.Next() {
		if n++; n > most {
			return 0
		}
	}
	return n
}

// MaxBeforeVLAN is the longest name of a device that VLAN devices can have in front of theirs (IFNAMSIZ).
const MaxBeforeVLAN = 13
