package addrs

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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

// entryText cuts a line of a list to its first field, or to the whole range when blanks surround the dash. It is empty
// when the line holds none.
func entryText(line []byte) string {
	if i := slices.IndexFunc(line, func(c byte) bool { return c == '#' || c == ';' || c == ',' }); i >= 0 {
		if line[i] == ',' && len(bytes.TrimSpace(line[:i])) == 0 {
			return "," // an empty first field is a mistake, not an empty line
		}
		line = line[:i]
	}
	line = bytes.TrimSpace(line)
	if bytes.IndexByte(line, ' ') < 0 && bytes.IndexByte(line, '\t') < 0 {
		return string(line)
	}
	fields := bytes.Fields(line)
	switch n := len(fields); {
	case n > 2 && string(fields[1]) == "-":
		return string(bytes.Join(fields[:3], nil))
	case n > 1 && (bytes.HasSuffix(fields[0], []byte("-")) || bytes.HasPrefix(fields[1], []byte("-"))):
		return string(bytes.Join(fields[:2], nil))
	}
	return string(fields[0])
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
		if next == at+1 {
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

// endsField reports whether the field ends here and no dash of a range follows.
func endsField(rest []byte) bool {
	for i, c := range rest {
		switch c {
		case ' ', '\t', '\r':
			continue
		case '\n', '#', ';', ',':
			return true
		}
		return i > 0 && c != '-'
	}
	return true
}
