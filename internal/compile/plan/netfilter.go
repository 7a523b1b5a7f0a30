// SPDX-License-Identifier: Apache-2.0

// This file has code that the generators for nftables and iptables share: for checks, for protections, and for the number of prefixes that a limit
// holds.

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

// DiffersForwarded reports whether the text of a rule at filter must differ between packets to this host and forwarded packets. The kernel decrements
// the TTL of forwarded packets before the hook (net/ipv4/ip_forward.c, net/ipv6/ip6_output.c), and the destination of forwarded packets is not one of
// the host's own addresses.
func DiffersForwarded(pl *Plan, r *ir.Rule) bool {
	return TestsTTL(r) || slices.ContainsFunc(r.Dst, func(m ir.AddrMatch) bool { return match.HasLocal(pl.Program.Sets, m) })
}

// TestsTTL reports whether a rule tests the TTL.
func TestsTTL(r *ir.Rule) bool {
	return slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.TTL })
}

// HeldPrefixes returns the capacity in prefixes of a limit in netfilter. limit is the max of the policy. In netfilter, entries take memory only while
// they are in use.
func HeldPrefixes(limit int) int {
	const usual = 1 << 17
	return cmp.Or(limit, usual)
}

// ProxyCounters has the names of the counters of a protection that uses SYNPROXY.
type ProxyCounters struct {
	Proxied string // packets that are passed to SYNPROXY: SYNs, unless XDP answers them, and the next packets of the clients
	Invalid string // packets that belong to no connection and that SYNPROXY does not get
}

// HandshakeOf returns the handshake parameters of a protection. number is the number of the protection, counted from 1. The parameters come from
// protect, or are the usual ones if protect is empty.
func HandshakeOf(pl *Plan, protect []ir.Handshake, number int) ir.Handshake {
	if number <= len(protect) {
		return protect[number-1]
	}
	return ir.UsualHandshake(&pl.Program.Protections[number-1], 0)
}

// LeftCheck is a check that a policy enables and a target does not make.
type LeftCheck struct {
	Check packet.Check
	Why   string // why the target cannot make the check, and the kernel's own handling of such packets
}

// ProtosWithout returns the protocols of a that are not in b.
func ProtosWithout(a, b []ir.Range) []ir.Range {
	return ranges.Common(a, ranges.Complement(b, packet.Proto.Size()), packet.Proto.Size())
}

// Addresses splits a list of ranges, which must not overlap, into single addresses and larger ranges. A hash of addresses is faster to build and to
// query than a set of ranges. So short ranges become single addresses, unless this would double the length of the list.
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

// upTo returns the number of addresses in a range. It returns 0 if the range has more than most.
func upTo(r netipx.IPRange, most int) int {
	n := 1
	for a := r.From(); a != r.To(); a = a.Next() {
		if n++; n > most {
			return 0
		}
	}
	return n
}

// MaxBeforeVLAN is the largest length of a device name for which the name of its VLAN device (`NAME.ID`) is valid (IFNAMSIZ).
const MaxBeforeVLAN = 13
