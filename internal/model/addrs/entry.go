// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go4.org/netipx"
)

// AddText adds an address, a prefix or a range (first-last, with or without blanks around the dash) as one entry.
func (b *Builder) AddText(text string) error {
	if first, last, ok := strings.Cut(text, "-"); ok {
		return b.addRangeText(text, strings.TrimSpace(first), strings.TrimSpace(last))
	}
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return notAnEntry(text)
		}
		return b.Add(p)
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return notAnEntry(text)
	}
	if a.Zone() != "" {
		return fmt.Errorf("address %q has a zone, leave it out", text)
	}
	return b.Add(netip.PrefixFrom(a, a.BitLen()))
}

func (b *Builder) addRangeText(text, first, last string) error {
	from, err := netip.ParseAddr(first)
	if err != nil {
		return notAnEntry(text)
	}
	to, err := netip.ParseAddr(last)
	if err != nil {
		return notAnEntry(text)
	}
	return b.AddRange(from, to)
}

func notAnEntry(text string) error {
	const longest = 64 // a few bytes more than any range; the rest of a longer text is no help to the user
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	return fmt.Errorf("not an address, prefix or range: %q", text)
}

// entryText returns the entry in a line of a list, or "" if there is none. The entry is the first field, together with the following fields that
// belong to it (see withRest). If the line is a range with blanks around the dash, the entry is the whole range.
func entryText(line []byte) string {
	var rest []string
	if i := slices.IndexFunc(line, func(c byte) bool { return c == '#' || c == ';' || c == ',' }); i >= 0 {
		if line[i] == ',' && len(bytes.TrimSpace(line[:i])) == 0 {
			return "," // an empty first field is a mistake, not an empty line
		}
		if line[i] == ',' || line[i] == ';' && i > 0 && line[i-1] > ' ' { // after a blank, ; starts a comment
			columns, _, _ := strings.Cut(string(line[i+1:]), "#")
			rest = strings.FieldsFunc(columns, func(c rune) bool { return c == ';' || c == ',' || unicode.IsSpace(c) })
		}
		line = line[:i]
	}
	fields := strings.Fields(string(line))
	switch n := len(fields); {
	case n == 0:
		return ""
	case n > 2 && fields[1] == "-":
		return emule(strings.Join(fields[:3], ""), rest)
	case n > 1 && (strings.HasSuffix(fields[0], "-") || strings.HasPrefix(fields[1], "-")):
		return strings.Join(fields[:2], "")
	}
	return withRest(fields[0], append(fields[1:], rest...))
}

// withRest returns an entry together with the fields after it that belong to it. After an address, the next field may be the last address of a range,
// as in DShield's lists. It may also be a netmask, a wildcard mask as on routers, or a prefix length. A number without a slash is a prefix length
// only if no other field follows and all bits of the address after that length are 0. Otherwise the number is a score. If two addresses are far
// apart, it is unclear whether they are a range, so they are not a valid entry.
func withRest(first string, rest []string) string {
	a, err := netip.ParseAddr(first)
	if err != nil || len(rest) == 0 {
		return first
	}
	if b, err := netip.ParseAddr(rest[0]); err == nil {
		if bits, ok := maskBits(a, b); ok {
			return fmt.Sprintf("%s/%d", a, bits)
		}
		third := len(rest) > 1 && func() bool { _, err := netip.ParseAddr(rest[1]); return err == nil }()
		if a.BitLen() != b.BitLen() || b.Less(a) || third || a.AsSlice()[0] != b.AsSlice()[0] {
			return first + " " + strings.Join(rest, " ")
		}
		return first + "-" + rest[0]
	}
	digits, slash := strings.CutPrefix(rest[0], "/")
	bits, err := strconv.Atoi(digits)
	if p := netip.PrefixFrom(a, bits); err == nil && p.IsValid() && (slash || len(rest) == 1 && bits > 0 && p == p.Masked()) {
		return p.String()
	}
	return first
}

// maskBits returns the prefix length of a netmask or a wildcard mask (an inverted netmask) that follows an address.
func maskBits(a, mask netip.Addr) (bits int, ok bool) {
	if a.BitLen() != mask.BitLen() {
		return 0, false
	}
	text := mask.AsSlice()
	wildcard := text[0] != 0xff
	for i := range text {
		if wildcard {
			text[i] = ^text[i]
		}
	}
	bits, size := net.IPMask(text).Size()
	if size == 0 || bits == 0 || wildcard && netip.PrefixFrom(a, bits).Masked().Addr() != a {
		return 0, false
	}
	return bits, true
}

// emule converts a range of eMule's file ipfilter.dat. The numbers in such a range have leading zeros, and a level follows the range. From level 128
// on, the range is not blocked, and emule returns "". Any other text is returned unchanged.
func emule(text string, rest []string) string {
	numbers := strings.FieldsFunc(text, func(r rune) bool { return r == '.' || r == '-' })
	if len(text) != len("000.000.000.000-000.000.000.000") || text[15] != '-' || len(numbers) != 8 {
		return text
	}
	for i, digits := range numbers {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || len(digits) != 3 {
			return text
		}
		numbers[i] = strconv.FormatUint(n, 10)
	}
	if len(rest) > 0 {
		if level, err := strconv.Atoi(rest[0]); err == nil && level > 127 {
			return ""
		}
	}
	return strings.Join(numbers[:4], ".") + "-" + strings.Join(numbers[4:], ".")
}

// namedRange returns the range of a line in P2P form, `name:first-last`, or "" if the line has another form. The name may contain characters that
// start a comment in other forms. Therefore namedRange must be called only if the line has no entry of another form.
func namedRange(line []byte) string {
	text := strings.TrimSpace(string(line))
	if text == "" || text[0] == '#' || text[0] == ';' {
		return ""
	}
	for rest := text; ; {
		_, after, found := strings.Cut(rest, ":")
		if !found {
			return ""
		}
		rest = after
		r, err := netipx.ParseIPRange(strings.ReplaceAll(after, " ", ""))
		if err == nil && !strings.HasPrefix(text, "::") && r.From().Zone() == "" {
			return r.String()
		}
	}
}

// fastLine parses a line that starts with an IPv4 address or prefix in plain form. Nearly all lines of long lists do. It returns false for all other
// lines and for all doubtful lines, which AddText then parses.
func fastLine(line []byte) (Range, bool) {
	var a uint32
	at := 0
	for part := range 4 {
		n, next := decimal(line, at, 255)
		if next == at || part < 3 && (next == len(line) || line[next] != '.') {
			return Range{}, false
		}
		a = a<<8 | n
		at = next + 1
	}
	at--
	bits := uint32(32)
	if at < len(line) && line[at] == '/' {
		n, next := decimal(line, at+1, 32)
		if next == at+1 || n < Shortest4 {
			return Range{}, false
		}
		bits, at = n, next
	}
	return block4(a, int(bits)), endsField(line[at:])
}

// plainHost parses a line that consists of an IPv4 address only. Most lines of the longest lists do. n is the length of the line with its newline. n
// is 0 for any other line, and also if so few bytes are left that the line might not be complete.
func plainHost(text []byte) (a uint32, n int) {
	const longest = len("255.255.255.255\n")
	if len(text) < longest {
		return 0, 0
	}
	line := (*[longest]byte)(text)
	at := 0
	for part := range 4 {
		first := line[at&(longest-1)] - '0'
		number := uint32(first)
		at++
		digit := line[at&(longest-1)] - '0'
		for end := at + 2; digit <= 9 && at < end; digit = line[at&(longest-1)] - '0' {
			number = number*10 + uint32(digit)
			at++
			if first == 0 {
				return 0, 0
			}
		}
		separator := byte('.')
		if part == 3 {
			separator = '\n'
		}
		if first > 9 || number > 255 || digit+'0' != separator {
			return 0, 0
		}
		a = a<<8 | number
		at++
	}
	return a, at
}

// decimal parses a number of up to three digits without leading zeros, from index at on. It returns the number and the index after it. If there is no
// such number, or if it exceeds the limit, next is equal to at.
func decimal(line []byte, at int, limit uint32) (n uint32, next int) {
	for next = at; next < len(line) && next < at+3; next++ {
		digit := uint32(line[next]) - '0'
		if digit > 9 {
			break
		}
		n = n*10 + digit
	}
	if n > limit || next > at+1 && line[at] == '0' {
		return 0, at
	}
	return n, next
}

// endsField reports whether the field ends here, and whether no dash, slash or number follows that may belong to it.
func endsField(rest []byte) bool {
	for i, c := range rest {
		switch c {
		case ' ', '\t', '\r', ';', ',':
			continue
		case '\n', '#':
			return true
		}
		return i > 0 && c != '-' && c != '/' && (c < '0' || c > '9')
	}
	return true
}
