package addrs

import "net/netip"

// MostError says that a list has most addresses of a family.
type MostError struct{ What string }

func (e *MostError) Error() string { return e.What }

// Hint is the remedy.
func (*MostError) Hint() string {
	return "look for a line that is shorter than meant; for all addresses leave the set out of the rule, and for all but some write `not: {from: $SET}`"
}

// NotMost is a *MostError if the set has more than three quarters of all IPv4 addresses, or all of the global unicast addresses of IPv6 (RFC 4291, 2.4).
// No author of a list means that: lists of many countries have less. Lines that are each narrow enough may have them together, as 0.0.0.0/1 and 128.0.0.0/1. Of IPv6 little is
// given to networks, so lists of bogons have more than half of it.
func (s *Set) NotMost() error {
	switch {
	case s.Addresses4() > 3<<30:
		return &MostError{"it has more than three quarters of all IPv4 addresses"}
	case s.Covers(globalUnicast6):
		return &MostError{"it has all IPv6 addresses of the Internet"}
	}
	return nil
}

// Addresses4 is how many IPv4 addresses are in the set.
func (s *Set) Addresses4() (n uint64) {
	for _, r := range s.v4 {
		n += uint64(r.Last-r.First) + 1
	}
	return n
}

// globalUnicast6 is 2000::/3, from which the IANA gives addresses to networks.
var globalUnicast6 = &Set{v6: []prefix6{prefix6From(netip.MustParseAddr("2000::"), 3)}}
