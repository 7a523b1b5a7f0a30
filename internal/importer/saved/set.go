// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Entry is one entry of a set: addresses, ports, or both. A part that the set's entries do not have is zero.
type Entry struct {
	Addr    netipx.IPRange
	Ports   Values // coded as packet.DPort
	Comment string
	Except  bool // the entry excludes addresses from larger entries (ipset's nomatch)
}

// MaxTuples is the largest number of entries with addresses and ports that are written as rules.
const MaxTuples = 64

// Finish computes the addresses of s from its entries.
func (s *Set) Finish() {
	if !s.IsAddrs() {
		return
	}
	except := slices.ContainsFunc(s.Entries, func(e Entry) bool { return e.Except })
	if except { // the longest prefix decides
		slices.SortStableFunc(s.Entries, func(a, b Entry) int { return size(a.Addr) - size(b.Addr) })
	}
	var b netipx.IPSetBuilder
	for _, e := range s.Entries {
		if e.Except {
			b.RemoveRange(e.Addr)
		} else {
			b.AddRange(e.Addr)
		}
	}
	all, err := b.IPSet()
	if err != nil {
		s.Problem = err.Error()
		return
	}
	s.Ranges = all.Ranges()
	if except {
		s.Entries = nil
		for _, r := range s.Ranges {
			s.Entries = append(s.Entries, Entry{Addr: r})
		}
	}
}

// size returns the length of the prefix r.
func size(r netipx.IPRange) int {
	p, _ := r.Prefix()
	return p.Bits()
}

// IsAddrs reports whether the entries of s are only addresses.
func (s *Set) IsAddrs() bool { return len(s.Dims) == 1 && s.Dims[0] == DimAddr }

// Lookup returns the Conds of a lookup of a packet's addresses and ports in s. The lookup succeeds if any of them holds. sides says for each part of
// an entry whether the part is compared with the source or with the destination. why is the reason if the lookup has no equivalent.
func (s *Set) Lookup(sides []string, not bool) (alts []Cond, why string) {
	switch {
	case s.Problem != "":
		return nil, s.Problem
	case len(sides) < len(s.Dims):
		return nil, fmt.Sprintf("whose entries have %d parts", len(s.Dims))
	case s.Lists != nil && not:
		return nil, "a list of sets, negated"
	case s.IsAddrs():
		t := AddrTest{In: &AddrSet{Sets: s.leaves()}}
		if not {
			t = t.Not()
		}
		return []Cond{side(sides[0], t)}, ""
	case s.Dynamic:
		return nil, "which is filled at run time and has more than addresses in it"
	case len(s.Dims) == 1:
		return s.portLookup(sides[0], not), ""
	case not:
		return nil, "of addresses and ports, negated"
	case len(s.Entries) > MaxTuples:
		return nil, fmt.Sprintf("with %d entries of addresses and ports", len(s.Entries))
	}
	for _, e := range s.Entries {
		alts = append(alts, s.tuple(e, sides))
	}
	return alts, ""
}

// leaves returns the sets of a list of sets, or s itself if it is not a list.
func (s *Set) leaves() []*Set {
	if s.Lists == nil {
		return []*Set{s}
	}
	var all []*Set
	for _, l := range s.Lists {
		all = append(all, l.leaves()...)
	}
	return all
}

// portLookup returns the Conds of a lookup in a set of ports.
func (s *Set) portLookup(of string, not bool) []Cond {
	v := Values{}
	for _, e := range s.Entries {
		v = v.Or(e.Ports)
	}
	f := portField(of)
	if not {
		v = v.Not(f)
	}
	return []Cond{Cond{}.With(f, v)}
}

// tuple returns the Cond for a packet that matches one entry.
func (s *Set) tuple(e Entry, sides []string) Cond {
	var c Cond
	for i, d := range s.Dims {
		if d == DimAddr {
			c = c.And(side(sides[i], AddrTest{In: &AddrSet{Ranges: []netipx.IPRange{e.Addr}}}))
		} else {
			c = c.With(portField(sides[i]), e.Ports)
		}
	}
	return c
}

// side returns a test of the source or the destination address. of is ipset's word for it: src or dst.
func side(of string, t AddrTest) Cond {
	if of == "src" {
		return Cond{}.From(t)
	}
	return Cond{}.To(t)
}

func portField(of string) packet.Field {
	if of == "src" {
		return packet.SPort
	}
	return packet.DPort
}

// ParseAddrs reads a comma-separated list of addresses, prefixes, addresses with a mask, and ranges.
func ParseAddrs(text string) (*AddrSet, bool) {
	var ranges []netipx.IPRange
	for word := range strings.SplitSeq(text, ",") {
		r, ok := ParseRange(word)
		if !ok {
			return nil, false
		}
		ranges = append(ranges, r)
	}
	return &AddrSet{Ranges: Join(ranges)}, true
}

// ParseRange parses the same texts as AnyRange, but refuses ranges with an end that is Mapped.
func ParseRange(text string) (netipx.IPRange, bool) {
	r, ok := AnyRange(text)
	return r, ok && !Mapped(r)
}

// Mapped reports whether r begins or ends with an IPv4-mapped IPv6 address. No policy can name such addresses.
func Mapped(r netipx.IPRange) bool { return r.From().Is4In6() || r.To().Is4In6() }

// AnyRange reads an address, `ADDRESS/LENGTH`, `ADDRESS/MASK` or `ADDRESS-ADDRESS`, of IPv4 or IPv6.
func AnyRange(text string) (netipx.IPRange, bool) {
	if base, mask, ok := strings.Cut(text, "/"); ok {
		return parsePrefix(base, mask)
	}
	if strings.Contains(text, "-") {
		r, err := netipx.ParseIPRange(text)
		return r, err == nil
	}
	a, err := netip.ParseAddr(text)
	return netipx.IPRangeFrom(a, a), err == nil && a.Zone() == ""
}

// parsePrefix reads a prefix. Its mask is a number of bits, or an address whose bits are ones followed by zeros.
func parsePrefix(base, mask string) (netipx.IPRange, bool) {
	a, err := netip.ParseAddr(base)
	if err != nil || a.Zone() != "" {
		return netipx.IPRange{}, false
	}
	length, ok := Number(mask, 128)
	if !ok {
		m, err := netip.ParseAddr(mask)
		if err != nil || m.BitLen() != a.BitLen() {
			return netipx.IPRange{}, false
		}
		if length, ok = MaskLength(m); !ok {
			return netipx.IPRange{}, false
		}
	}
	p, err := a.Prefix(int(length))
	if err != nil {
		return netipx.IPRange{}, false
	}
	return netipx.RangeOfPrefix(p), true
}

// MaskLength returns the number of leading ones of mask. It returns false if other ones follow after a zero.
func MaskLength(mask netip.Addr) (uint32, bool) {
	bytes := mask.As16()
	hi, lo := binary.BigEndian.Uint64(bytes[:8]), binary.BigEndian.Uint64(bytes[8:])
	if mask.Is4() {
		hi, lo = lo<<32, 0
	}
	ones := bits.LeadingZeros64(^hi)
	if ones == 64 {
		ones += bits.LeadingZeros64(^lo)
	}
	return uint32(ones), ones == bits.OnesCount64(hi)+bits.OnesCount64(lo)
}

// AddrKinds returns the addresses of the address types in a comma-separated list, with the names of addrtype and fib. narrower is true if the list
// has broadcast addresses, because the result contains only some of these.
func AddrKinds(kinds string) (all *AddrSet, narrower, ok bool) {
	all = &AddrSet{}
	for kind := range strings.SplitSeq(kinds, ",") {
		switch kind {
		case "local":
			all.Local = true
		case "multicast":
			all.Ranges = append(all.Ranges, multicast...)
		case "broadcast":
			all.Ranges = append(all.Ranges, netipx.RangeOfPrefix(netip.MustParsePrefix("255.255.255.255/32")))
			narrower = true
		default:
			return nil, false, false
		}
	}
	all.Ranges = Join(all.Ranges)
	return all, narrower, true
}

var multicast = []netipx.IPRange{
	netipx.RangeOfPrefix(netip.MustParsePrefix("224.0.0.0/4")),
	netipx.RangeOfPrefix(netip.MustParsePrefix("ff00::/8")),
}
