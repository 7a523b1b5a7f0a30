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
	const longest = 64 // a few bytes more than any range; the rest of such a text helps nobody
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	return fmt.Errorf("not an address, prefix or range: %q", text)
}

// entryText cuts a line of a list to its entry: to its first field with what belongs to it (see withRest), or to the whole range when
// blanks surround the dash. It is empty when the line holds none.
func entryText(line []byte) string {
	var rest []string
	if i := slices.IndexFunc(line, func(c byte) bool { return c == '#' || c == ';' || c == ',' }); i >= 0 {
		if line[i] == ',' && len(bytes.TrimSpace(line[:i])) == 0 {
			return "," // an empty first field is a mistake, not an empty line
		}
		if line[i] == ',' || line[i] == ';' && i > 0 && line[i-1] > ' ' { // behind a blank, ; begins a comment
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

// withRest is an entry with the fields behind it, where these belong to it: behind an address the last address of the range, as DShield
// has it, a netmask, a wildcard mask as routers have it, or a prefix length. A number without a slash is a length if no other field follows
// and the address has no bits behind it; else it is a score. Of two addresses that are far apart nobody can tell whether they are a range,
// so they are no entry.
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

// maskBits is the prefix length that a netmask means behind an address, or a wildcard mask, which has the other bits.
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

// emule is a range as the file ipfilter.dat of eMule has it, with zeros before the numbers, and behind it a level: from 128 on the range is
// not blocked. Any other range stays as it is.
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

// namedRange is the range of a line in P2P form, `name:first-last`, or "". The name may hold what begins a comment elsewhere. It is
// asked only of lines that are no entry of another form.
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

// fastLine reads a line that starts with an IPv4 address or prefix in plain form, which nearly all lines of long lists
// do. It leaves all others, and every doubt, to AddText.
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

// plainHost reads a line that is an IPv4 address and nothing else, as most lines of the longest lists are. n is the length of the line
// with its end; it is 0 when the line is another, or when so few bytes are left that the line could go on behind them.
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

// decimal reads a number of up to three digits without leading zeros. It returns the place behind it, or at when there
// is no such number or it exceeds the limit.
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

// endsField reports whether the field ends here, and nothing follows that may belong to it: a dash, a slash or a number.
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
