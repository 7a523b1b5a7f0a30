// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/text/wording"
)

const addrForm = "an address, a prefix or a range"

var (
	addressSchema = define("addresses", text(`^[0-9A-Fa-f:.]+(/[0-9]+|\s*-\s*[0-9A-Fa-f:.]+)?$`).
			titled("address").described("An address, a prefix without host bits, or a range.").
			withExamples(`"192.0.2.1", "2001:db8::/32", "198.51.100.20-198.51.100.29"`))

	endSchema = define("end", anyOf(addressSchema,
		setReference("A set that is declared under sets."),
		enum("local").described("The host's own addresses.")).titled("address, `$SET` or `local`"))

	ends = form[[]Addr]{listOf(endSchema), place.addrs}
)

// addrRange parses an address, a prefix without host bits, or a range first-last.
func addrRange(text string) (AddrRange, *flaw) {
	if strings.Contains(text, "/") {
		return prefix(text)
	}
	if first, last, ok := strings.Cut(text, "-"); ok {
		return endpoints(text, strings.TrimSpace(first), strings.TrimSpace(last))
	}
	a, f := address(text, text)
	return AddrRange{a, a}, f
}

// address parses one address. whole is the complete text that contains the address, such as a range. Messages quote whole.
func address(text, whole string) (netip.Addr, *flaw) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return a, addrHint(want(addrForm, whole), text)
	case a.Zone() != "":
		return a, want("an address without a zone", whole).hintf("write %s", a.WithZone(""))
	case a.Is4In6():
		return a, want("an IPv4 address in its own form", whole).hintf("write %s", a.Unmap())
	}
	return a, nil
}

func prefix(text string) (AddrRange, *flaw) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return AddrRange{}, prefixHint(text)
	}
	if a := p.Addr(); a.Is4In6() {
		f := want("an IPv4 prefix in its own form", text)
		if p.Bits() >= 96 {
			f.hintf("write %s", netip.PrefixFrom(a.Unmap(), p.Bits()-96).Masked())
		}
		return AddrRange{}, f
	}
	if p != p.Masked() {
		f := &flaw{msg: fmt.Sprintf("has a prefix with host bits set, %s", wording.Quote(text))}
		return AddrRange{}, f.hintf("%s, or %s for the one address", p.Masked(), p.Addr())
	}
	return AddrOf(p).AddrRange, nil
}

// prefixHint returns a flaw with a hint for a text that contains a slash and is not a valid prefix.
func prefixHint(text string) *flaw {
	base, bits, _ := strings.Cut(text, "/")
	f := want(addrForm, text)
	if strings.Contains(text, "-") {
		return f.hintf("a range is FIRST-LAST, without a prefix length")
	}
	a, err := netip.ParseAddr(base)
	if err != nil {
		short := base + strings.Repeat(".0", max(0, 3-strings.Count(base, ".")))
		if p, err := netip.ParsePrefix(short + "/" + bits); err == nil {
			return f.hintf("write all four numbers: %s", p.Masked())
		}
		return addrHint(f, base)
	}
	if mask, err := netip.ParseAddr(bits); err == nil && mask.Is4() && a.Is4() {
		m := mask.As4()
		if ones, size := net.IPMask(m[:]).Size(); size > 0 {
			return f.hintf("write the mask as a number of bits: %s", netip.PrefixFrom(a, ones).Masked())
		}
	}
	return f.hintf("an %s prefix has 0 to %d bits", familyName(a), a.BitLen())
}

func endpoints(text, first, last string) (AddrRange, *flaw) {
	from, f := address(first, text)
	if f != nil {
		return AddrRange{}, f
	}
	to, f := address(last, text)
	if f != nil {
		if dot := strings.LastIndex(first, "."); from.Is4() && isDigits(last) {
			f.hintf("write both ends in full: %s-%s.%s", first, first[:dot], last)
		}
		return AddrRange{}, f
	}
	switch {
	case from.Is4() != to.Is4():
		return AddrRange{}, want("a range of one family", text).hintf("write a range for IPv4 and another for IPv6")
	case to.Less(from):
		return AddrRange{}, want("a range from low to high", text).hintf("write %s-%s", to, from)
	}
	return AddrRange{from, to}, nil
}

// addrHint adds a hint to the flaw f of a text that is not a valid address.
func addrHint(f *flaw, text string) *flaw {
	if host, err := netip.ParseAddrPort(text); err == nil {
		return f.hintf("write %s, and the port under port", host.Addr())
	}
	switch strings.ToLower(text) {
	case "any", "all", "*", "everyone", "anywhere":
		return f.hintf("leave the key out, and every address matches")
	case "localhost", "self", "host", "me":
		return f.hintf("local means the host's own addresses")
	}
	if text != "" && strings.Trim(text, "0123456789.") == "" {
		return f.hintf("an IPv4 address has four numbers from 0 to 255 without leading zeros")
	}
	if strings.ContainsAny(text, "ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ_") && !strings.ContainsAny(text, ", ") {
		return f.hintf("names are not looked up: write addresses, or $NAME for a set")
	}
	return f
}

func familyName(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// String returns r in the policy's notation: a prefix if r is equal to one, otherwise first-last.
func (r AddrRange) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	if p, ok := netipx.IPRangeFrom(r.First, r.Last).Prefix(); ok {
		return p.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// AddrOf returns a prefix as an alternative of from or to.
func AddrOf(p netip.Prefix) Addr {
	return Addr{AddrRange: AddrRange{p.Masked().Addr(), netipx.PrefixLastIP(p)}}
}

// String returns a in the policy's notation.
func (a Addr) String() string {
	switch {
	case a.Local:
		return "local"
	case a.Set != "":
		return "$" + a.Set
	}
	return a.AddrRange.String()
}

// addrs parses the key from or to.
func (p place) addrs(key string, v *node) []Addr {
	var all []Addr
	p.each(key, v, func(w *node) {
		a := Addr{Pos: w.Pos}
		var f *flaw
		switch name, isSet := strings.CutPrefix(w.Text, "$"); {
		case isSet:
			a.Set, f = name, p.r.setFlaw(name, addressSet, dynamicSet, liveSet)
		case w.Text == "local":
			a.Local = true
		case p.r.sets[w.Text] != noSet && p.r.sets[w.Text] != nameSet:
			f = want(addrForm, w.Text).hintf("%q is a set: write $%s", w.Text, w.Text)
		case p.r.sets[w.Text] == nameSet:
			f = otherKind(w.Text, false)
		default:
			a.AddrRange, f = addrRange(w.Text)
		}
		if f != nil {
			p.flawed(w.Pos, key, listHint(f, key, w, v))
			return
		}
		all = append(all, a)
	})
	return all
}
