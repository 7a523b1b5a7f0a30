// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// ParseLine reads one line as Read does, and returns its entry as prefixes, or none if the line has no entry. It is
// stricter than Read in one respect: a prefix with host bits set is an error, since it is unclear whether the address
// or the network is meant.
func ParseLine(line []byte) ([]netip.Prefix, error) {
	list, err := parseEntry(entryText(line))
	if err != nil {
		if text := namedRange(line); text != "" {
			return parseEntry(text)
		}
	}
	return list, err
}

// IsNamedRange reports whether a line has the P2P form, `name:first-last`.
func IsNamedRange(line []byte) bool {
	_, err := parseEntry(entryText(line))
	return err != nil && namedRange(line) != ""
}

// parseEntry reads the text of an entry, without any comment. It returns nil if the text is empty.
func parseEntry(text string) ([]netip.Prefix, error) {
	if text == "" {
		return nil, nil
	}
	if first, last, ok := strings.Cut(text, "-"); ok {
		return parseRange(text, first, last)
	}
	if !strings.Contains(text, "/") {
		a, err := parseAddr(text, text)
		if err != nil {
			return nil, err
		}
		return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return nil, notAnEntry(text)
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return nil, fmt.Errorf("%s has host bits set: write %s for the network or %s for the address", p, p.Masked(), p.Addr())
	}
	return []netip.Prefix{p}, nil
}

func parseRange(text, first, last string) ([]netip.Prefix, error) {
	from, err := parseAddr(first, text)
	if err != nil {
		return nil, err
	}
	to, err := parseAddr(last, text)
	if err != nil {
		return nil, err
	}
	r := netipx.IPRangeFrom(from, to)
	if !r.IsValid() {
		return nil, fmt.Errorf("range %q does not go from a lower to a higher address of one family", text)
	}
	return r.Prefixes(), nil
}

// parseAddr reads an address of an entry. IPv4-mapped IPv6 addresses, which sockets of both families report, become
// IPv4 addresses.
func parseAddr(text, entry string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(text))
	if err != nil {
		return netip.Addr{}, notAnEntry(entry)
	}
	if a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("address %q has a zone, leave it out", entry)
	}
	return a.Unmap(), nil
}
