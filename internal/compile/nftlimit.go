package compile

import (
	"fmt"
	"math/bits"
	"net/netip"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

// nftUnits are the times that nft counts rates by, the shortest first.
var nftUnits = []struct {
	per  time.Duration
	name string
}{{time.Second, "second"}, {time.Minute, "minute"}, {time.Hour, "hour"}, {24 * time.Hour, "day"}}

// nftRate writes a limit as nft's, or says why it has no such. The kernel's is a token bucket, counted in nanoseconds
// (net/netfilter/nft_limit.c): full at first, with room for the burst, and what exceeds it takes nothing out. That is
// ir.Limit, but for the time of a packet or of the octets of one being cut to whole nanoseconds.
func nftRate(l *ir.Limit) (text, why string) {
	if l.Bits {
		return nftBits(l)
	}
	each := uint64(l.Per) / l.Rate
	if uint64(l.Per)%l.Rate > 0 && each < minPrecision {
		return "", "nftables counts in whole nanoseconds, which is too coarse for this rate"
	}
	if l.Burst > 1<<32-1 || overflows(each, l.Burst) {
		return "", "the burst is more than nftables can count"
	}
	return fmt.Sprintf("rate over %d/%s burst %d packets", l.Rate, unitName(l.Per), l.Burst), ""
}

// minPrecision are the least units of time that one packet may take where they are cut to whole ones: the rate is then at
// most 1% higher than it says.
const minPrecision = 100

// nftBits writes a limit of octets. The kernel's bucket has room for those of one unit of time, and the burst on top of
// that: so the shortest unit does best, which has to be one with a whole number of octets.
func nftBits(l *ir.Limit) (text, why string) {
	octets, burst := l.Rate/8, l.Burst/8
	per := l.Per
	for _, u := range nftUnits {
		if n := uint64(l.Per / max(u.per, 1)); n > 0 && l.Rate%(8*n) == 0 {
			octets, per = l.Rate/8/n, u.per
			break
		}
	}
	switch {
	case l.Rate%8 > 0 || l.Burst%8 > 0:
		return "", "nftables counts octets, of which this rate or its burst is no whole number"
	case burst < octets:
		return "", fmt.Sprintf("nftables allows a burst of at least what comes in one %s, %d bits", unitName(per), 8*octets)
	case burst-octets > 1<<32-1 || overflows(uint64(per), burst):
		return "", "rate and burst are more than nftables can count"
	}
	return fmt.Sprintf("rate over %d bytes/%s burst %d bytes", octets, unitName(per), burst-octets), ""
}

// overflows reports whether a product does not fit 64 bits.
func overflows(a, b uint64) bool {
	high, _ := bits.Mul64(a, b)
	return high > 0
}

func unitName(per time.Duration) string {
	for _, u := range nftUnits {
		if u.per == per {
			return u.name
		}
	}
	return ""
}

// drained is how long a limit's burst lasts to be forgotten, in whole seconds: from then on a prefix is as good as new.
func drained(l *ir.Limit) int64 {
	seconds := float64(l.Burst) / float64(l.Rate) * l.Per.Seconds()
	return int64(seconds) + 2
}

// heldPrefixes are how many prefixes a limit has room for on netfilter, where entries take memory only when they are used.
func heldPrefixes(l *ir.Limit) int {
	const usual = 1 << 17
	if l.Max == 0 {
		return usual
	}
	return l.Max
}

// overLines are what follows the tests of a line to ask for a limit, one for each family when it is by prefixes.
func (n *nft) overLines(limit int) []string {
	l := &n.plan.Program.Limits[limit]
	names, ok := n.limits[limit]
	if !ok {
		names = n.addLimit(l)
		n.limits[limit] = names
	}
	if l.Src == nil && l.Dst == nil {
		return []string{fmt.Sprintf("limit name %q", names[0])}
	}
	rate, _ := nftRate(l)
	var lines []string
	for family, name := range names {
		lines = append(lines, fmt.Sprintf("update @%s { %s limit %s }", name, prefixKey(l, uint32(family)), rate))
	}
	return lines
}

// addLimit defines what a limit is kept in: an object, or sets of prefixes, of which a full one has no room for further
// prefixes, which then do not exceed the limit.
func (n *nft) addLimit(l *ir.Limit) (names [2]string) {
	rate, _ := nftRate(l)
	base := "rate-" + l.Rule
	if l.Src == nil && l.Dst == nil {
		names[0] = n.names.add(base)
		fmt.Fprintf(&n.stateful, "\tlimit %s { %s }\n\n", names[0], rate)
		return names
	}
	for family := range names {
		names[family] = n.names.add(base + [...]string{packet.FamilyIPv4: "-v4", packet.FamilyIPv6: "-v6"}[family])
		kind := nftTypes[family]
		if l.Src != nil && l.Dst != nil {
			kind += " . " + kind
		}
		fmt.Fprintf(&n.stateful, "\tset %s {\n\t\ttype %s\n\t\tsize %d\n\t\tflags dynamic,timeout\n\t\ttimeout %s\n\t}\n\n",
			names[family], kind, heldPrefixes(l), nftDuration(drained(l)))
	}
	return names
}

// prefixKey are the prefixes of a packet's addresses.
func prefixKey(l *ir.Limit, family uint32) string {
	var words []string
	for i, p := range []*ir.Prefixes{l.Src, l.Dst} {
		if p == nil {
			continue
		}
		word := familyKeys[family] + [...]string{" saddr", " daddr"}[i]
		if m := prefixMask(p, family); m != "" {
			word += " & " + m
		}
		words = append(words, word)
	}
	return strings.Join(words, " . ")
}

// prefixMask is a prefix length as a mask, "" when it is the whole address.
func prefixMask(p *ir.Prefixes, family uint32) string {
	length, ones := p.V4, netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if family == packet.FamilyIPv6 {
		length, ones = p.V6, netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	}
	if length == ones.BitLen() {
		return ""
	}
	prefix, _ := ones.Prefix(length)
	return prefix.Addr().String()
}
