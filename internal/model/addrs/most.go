// SPDX-License-Identifier: Apache-2.0

package addrs

import "net/netip"

// MostError is the error that a list contains most addresses of a family.
type MostError struct{ What string }

func (e *MostError) Error() string { return e.What }

// Hint returns a text about how to correct the list or the policy.
func (*MostError) Hint() string {
	return "look for a line that is shorter than meant; for all addresses leave the set out of the rule, and for all but some write `not: {from: $SET}`"
}

// NotMost returns a *MostError if the set contains more than three quarters of all IPv4 addresses, or all global unicast addresses of IPv6 (RFC 4291,
// 2.4). Such a list is always a mistake: even lists of many countries have fewer addresses. Several lines may contain them together although each
// line is allowed, such as 0.0.0.0/1 and 128.0.0.0/1. The limit for IPv6 is higher, because lists of bogons contain more than half of IPv6. Only a
// small part of IPv6 is assigned to networks.
func (s *Set) NotMost() error {
	switch {
	case s.Addresses4() > 3<<30:
		return &MostError{"it has more than three quarters of all IPv4 addresses"}
	case s.Covers(globalUnicast6):
		return &MostError{"it has all IPv6 addresses of the Internet"}
	}
	return nil
}

// Addresses4 returns the number of IPv4 addresses in the set.
func (s *Set) Addresses4() (n uint64) {
	for _, r := range s.v4 {
		n += uint64(r.Last-r.First) + 1
	}
	return n
}

// globalUnicast6 is 2000::/3, from which the IANA assigns addresses to networks.
var globalUnicast6 = &Set{v6: []prefix6{prefix6From(netip.MustParseAddr("2000::"), 3)}}
