package importer

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/packet"
)

// entry is one entry of a set: addresses, ports, or both; what a set has not is zero.
type entry struct {
	addr    netipx.IPRange
	ports   values // coded as packet.DPort
	comment string
	except  bool // takes addresses out of larger entries (ipset's nomatch)
}

// maxTuples is how many entries of addresses with ports are written out as rules.
const maxTuples = 64

// finish computes the addresses of s from its entries.
func (s *set) finish() {
	if !s.isAddrs() {
		return
	}
	except := slices.ContainsFunc(s.entries, func(e entry) bool { return e.except })
	if except { // the longest prefix decides
		slices.SortStableFunc(s.entries, func(a, b entry) int { return size(a.addr) - size(b.addr) })
	}
	var b netipx.IPSetBuilder
	for _, e := range s.entries {
		if e.except {
			b.RemoveRange(e.addr)
		} else {
			b.AddRange(e.addr)
		}
	}
	all, err := b.IPSet()
	if err != nil {
		s.problem = err.Error()
		return
	}
	s.ranges = all.Ranges()
	if except {
		s.entries = nil
		for _, r := range s.ranges {
			s.entries = append(s.entries, entry{addr: r})
		}
	}
}

// size is the length of the prefix that r is.
func size(r netipx.IPRange) int {
	p, _ := r.Prefix()
	return p.Bits()
}

// isAddrs reports whether the entries of s are addresses alone.
func (s *set) isAddrs() bool { return len(s.dims) == 1 && s.dims[0] == dimAddr }

// lookup is what it means that the packet's addresses and ports are in s: any of the conds. sides says for each part
// of an entry whether it is the source's or the destination's. Why is set when there is no equal.
func (s *set) lookup(sides []string, not bool) (alts []cond, why string) {
	switch {
	case s.problem != "":
		return nil, s.problem
	case len(sides) < len(s.dims):
		return nil, fmt.Sprintf("whose entries have %d parts", len(s.dims))
	case s.lists != nil && not:
		return nil, "a list of sets, negated"
	case s.isAddrs():
		t := addrTest{in: &addrSet{sets: s.leaves()}}
		if not {
			t = t.not()
		}
		return []cond{side(sides[0], t)}, ""
	case s.dynamic:
		return nil, "which is filled at run time and has more than addresses in it"
	case len(s.dims) == 1:
		return s.portLookup(sides[0], not), ""
	case not:
		return nil, "of addresses and ports, negated"
	case len(s.entries) > maxTuples:
		return nil, fmt.Sprintf("with %d entries of addresses and ports", len(s.entries))
	}
	for _, e := range s.entries {
		alts = append(alts, s.tuple(e, sides))
	}
	return alts, ""
}

// leaves is s or, of a list of sets, the sets.
func (s *set) leaves() []*set {
	if s.lists == nil {
		return []*set{s}
	}
	var all []*set
	for _, l := range s.lists {
		all = append(all, l.leaves()...)
	}
	return all
}

// portLookup is a lookup in a set of ports.
func (s *set) portLookup(of string, not bool) []cond {
	v := values{}
	for _, e := range s.entries {
		v = v.or(e.ports)
	}
	f := portField(of)
	if not {
		v = v.not(f)
	}
	return []cond{cond{}.with(f, v)}
}

// tuple is what one entry asks of a packet.
func (s *set) tuple(e entry, sides []string) cond {
	var c cond
	for i, d := range s.dims {
		if d == dimAddr {
			c = c.and(side(sides[i], addrTest{in: &addrSet{ranges: []netipx.IPRange{e.addr}}}))
		} else {
			c = c.with(portField(sides[i]), e.ports)
		}
	}
	return c
}

// side is a test of the source's or the destination's address, by ipset's word for it.
func side(of string, t addrTest) cond {
	if of == "src" {
		return cond{}.from(t)
	}
	return cond{}.to(t)
}

func portField(of string) packet.Field {
	if of == "src" {
		return packet.SPort
	}
	return packet.DPort
}

// parseAddrs reads addresses, prefixes, addresses with a mask, and ranges, with commas between them.
func parseAddrs(text string) (*addrSet, bool) {
	var ranges []netipx.IPRange
	for word := range strings.SplitSeq(text, ",") {
		r, ok := parseRange(word)
		if !ok {
			return nil, false
		}
		ranges = append(ranges, r)
	}
	return &addrSet{ranges: join(ranges)}, true
}

func parseRange(text string) (netipx.IPRange, bool) {
	r, ok := anyRange(text)
	return r, ok && !mapped(r)
}

// mapped reports whether r begins or ends among the IPv6 addresses that stand for IPv4 ones, which no policy names.
func mapped(r netipx.IPRange) bool { return r.From().Is4In6() || r.To().Is4In6() }

func anyRange(text string) (netipx.IPRange, bool) {
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

// parsePrefix reads a prefix whose mask is a number of bits or an address, of ones and then zeros.
func parsePrefix(base, mask string) (netipx.IPRange, bool) {
	a, err := netip.ParseAddr(base)
	if err != nil || a.Zone() != "" {
		return netipx.IPRange{}, false
	}
	length, ok := number(mask, 128)
	if !ok {
		m, err := netip.ParseAddr(mask)
		if err != nil || m.BitLen() != a.BitLen() {
			return netipx.IPRange{}, false
		}
		if length, ok = maskLength(m); !ok {
			return netipx.IPRange{}, false
		}
	}
	p, err := a.Prefix(int(length))
	if err != nil {
		return netipx.IPRange{}, false
	}
	return netipx.RangeOfPrefix(p), true
}

// maskLength is how many ones mask begins with; it is false when others follow.
func maskLength(mask netip.Addr) (uint32, bool) {
	octets := mask.As16()
	hi, lo := binary.BigEndian.Uint64(octets[:8]), binary.BigEndian.Uint64(octets[8:])
	if mask.Is4() {
		hi, lo = lo<<32, 0
	}
	ones := bits.LeadingZeros64(^hi)
	if ones == 64 {
		ones += bits.LeadingZeros64(^lo)
	}
	return uint32(ones), ones == bits.OnesCount64(hi)+bits.OnesCount64(lo)
}

// addrKinds is the addresses of the kinds that addrtype and fib name, with commas between them. For broadcasts it is
// fewer than they mean.
func addrKinds(kinds string) (all *addrSet, narrower, ok bool) {
	all = &addrSet{}
	for kind := range strings.SplitSeq(kinds, ",") {
		switch kind {
		case "local":
			all.local = true
		case "multicast":
			all.ranges = append(all.ranges, multicast...)
		case "broadcast":
			all.ranges = append(all.ranges, netipx.RangeOfPrefix(netip.MustParsePrefix("255.255.255.255/32")))
			narrower = true
		default:
			return nil, false, false
		}
	}
	all.ranges = join(all.ranges)
	return all, narrower, true
}

var multicast = []netipx.IPRange{
	netipx.RangeOfPrefix(netip.MustParsePrefix("224.0.0.0/4")),
	netipx.RangeOfPrefix(netip.MustParsePrefix("ff00::/8")),
}
