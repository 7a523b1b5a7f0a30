// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// ipHeader is the length of an IP header without options or extension headers.
func ipHeader(f Family) int {
	if f == IPv6 {
		return 40
	}
	return 20
}

// shortHeader is the length of the headers of UDP and ICMP.
const shortHeader = 8

// bytesOf parses the tests of a packet's bytes by u32 and string.
func (r *iptablesRuleReader) bytesOf(all []Token) {
	parts := map[int][]Token{}
	texts := false
	for _, t := range all {
		if t.Module == "string" && t.Unread == "" {
			parts[t.Part] = append(parts[t.Part], t)
			texts = true
		}
	}
	place := &location{family: r.file.family}
	for _, t := range all {
		if t.Module == "u32" && t.Unread == "" {
			r.u32(t, place, texts)
		}
	}
	for _, t := range all {
		if of := parts[t.Part]; t.Module == "string" && of != nil {
			delete(parts, t.Part)
			r.text(of, place)
		}
	}
}

// location is the position of the bytes, as far as the tests of a rule determine it.
type location struct {
	family Family
	short  bool // the IP header has no options, or no extension headers
}

// noOptions says which packets a test of bytes does not match.
const noOptions = "it reads no packets with IPv4 options or IPv6 extension headers, and the policy reads those, too"

// u32 reads the tests of one u32 match.
func (r *iptablesRuleReader) u32(t Token, place *location, texts bool) {
	var bytes Payload
	var fields []Cond
	for test := range strings.SplitSeq(t.Args[0], "&&") {
		u, ok := parseU32(test)
		switch {
		case !ok:
			r.unknown("-m u32, " + strings.TrimSpace(test))
			return
		case u.headerLength(place.family):
			if t.Not || !texts && r.rule.Act.Kind != ActJump {
				r.unknown("-m u32, whether there are IPv4 options")
				return
			}
			place.short = true
			if !texts { // the texts are in the chain that the rule leads to
				r.each(func(c Cond) Cond { return c.Narrowed(noOptions) })
			}
		case u.base == atIP && place.family == IPv6 && r.firstIs(u):
			place.short = true
		default:
			c, at, why := u.meaning(place)
			if why != "" {
				r.unknown("-m u32, " + why)
				return
			}
			if at != nil {
				bytes.At = append(bytes.At, *at)
			} else {
				fields = append(fields, c)
			}
		}
	}
	r.askBytes(t.Not, bytes, fields, place)
}

// askBytes narrows the rule by tests of bytes and of fields. All must hold or, with not, must not all hold.
func (r *iptablesRuleReader) askBytes(not bool, bytes Payload, fields []Cond, place *location) {
	if not && len(fields) > 0 {
		r.unknown("! -m u32, of the IP header")
		return
	}
	bytes.Not = not
	r.each(func(c Cond) Cond {
		for _, f := range fields {
			c = c.And(f)
		}
		if len(bytes.At) == 0 {
			return c
		}
		if place.family == IPv6 {
			c = c.Narrowed(noOptions)
		}
		return c.WithPayload(bytes)
	})
}

// firstIs reports whether a test holds because the rule's protocol is that of the first header after the IPv6 header.
func (r *iptablesRuleReader) firstIs(u u32Test) bool {
	w, low, ok := MaskedWord(u.offset, u.mask)
	if !ok || w.Bit != 48 || w.Width != 8 || low != u.shift || len(r.protos) != 1 {
		return false
	}
	return Only(r.protos[0]).Within(u.values)
}

// base is the position that the offset of a test is relative to.
type base uint8

const (
	atIP base = iota
	atL4
	atPayload // of TCP
)

// u32Test is one test: the bits of four bytes under a mask, shifted to the right, have one of some values.
type u32Test struct {
	base   base
	offset int
	mask   uint32
	shift  int
	values Values
}

// headerLength reports whether the test holds exactly for IPv4 headers without options.
func (u u32Test) headerLength(f Family) bool {
	w, _, ok := MaskedWord(u.offset, u.mask)
	return ok && f == IPv4 && u.base == atIP && w.Bit == 4 && w.Width == 4 && len(u.values) == 1 && u.values[0] == Span{First: 5, Last: 5}
}

var operation = wording.Regexp(`^(&|>>|<<|@)\s*(0[xX][0-9a-fA-F]+|\d+)\s*`)

// parseU32 parses a test, which starts at the IP header (iptables-extensions(8), u32).
func parseU32(text string) (u u32Test, ok bool) {
	where, values, ok := strings.Cut(strings.TrimSpace(text), "=")
	if !ok {
		return u, false
	}
	u.offset, where, ok = startOf(where)
	u.mask = ^uint32(0)
	for where != "" && ok {
		m := operation().FindStringSubmatch(where)
		if m == nil {
			return u, false
		}
		n, err := strconv.ParseUint(m[2], 0, 32)
		where, ok = where[len(m[0]):], err == nil && u.apply(m[1], uint32(n))
	}
	for word := range strings.SplitSeq(values, ",") {
		s, read := NumberSpan(strings.TrimSpace(word), ":", 1<<32-1)
		ok = ok && read
		u.values = append(u.values, s)
	}
	u.values = Normalize(u.values)
	return u, ok
}

// startOf parses the number at the start of a location.
func startOf(text string) (n int, rest string, ok bool) {
	m := operation().FindStringSubmatch("@" + strings.TrimSpace(text))
	if m == nil {
		return 0, "", false
	}
	value, err := strconv.ParseUint(m[2], 0, 16)
	return int(value), strings.TrimSpace(text)[len(m[0])-1:], err == nil
}

// apply applies one operation. It supports only jumps over the IP header and over the TCP header.
func (u *u32Test) apply(operator string, n uint32) bool {
	switch operator {
	case "&":
		u.mask &= n << u.shift
	case ">>":
		u.shift += int(n)
		u.mask &= ^uint32(0) << min(u.shift, 31)
		return u.shift < 32
	case "<<":
		return false
	case "@":
		switch {
		case u.base == atIP && u.offset == 0 && u.shift == 22 && u.mask>>22 == 0x3c:
			*u = u32Test{base: atL4, offset: int(n), mask: ^uint32(0)}
		case u.base == atL4 && u.offset == 12 && u.shift == 26 && u.mask>>26 == 0x3c:
			*u = u32Test{base: atPayload, offset: int(n), mask: ^uint32(0)}
		case u.base == atIP && u.offset == 52 && u.shift == 26 && u.mask>>26 == 0x3c && n >= 40:
			*u = u32Test{base: atPayload, offset: int(n) - 40, mask: ^uint32(0)}
		default:
			return false
		}
	}
	return true
}

// meaning returns the field that the test means, or bytes at a position, or the reason why there is no equal.
func (u u32Test) meaning(place *location) (c Cond, at *At, why string) {
	header := ipHeader(place.family)
	if u.base == atIP && u.offset+4 > header && u.offset >= header-3 && (place.family == IPv6 && place.short) || u.base == atIP && u.offset >= header && place.short {
		u.base, u.offset = atL4, u.offset-header
	}
	if u.base == atIP {
		w, low, ok := MaskedWord(u.offset, u.mask)
		if !ok || low != u.shift {
			return c, nil, fmt.Sprintf("bits of the IP header at %d", u.offset)
		}
		w.Values = u.values
		if c, ok = w.Cond(place.family); !ok {
			return c, nil, fmt.Sprintf("bits of the IP header at %d", u.offset)
		}
		return c, nil, ""
	}
	if len(u.values) != 1 || u.values[0].First != u.values[0].Last {
		return c, nil, "a range of values of bytes"
	}
	var mask, value [4]byte
	binary.BigEndian.PutUint32(mask[:], u.mask)
	binary.BigEndian.PutUint32(value[:], u.values[0].First<<u.shift)
	n := 0
	for n < 3 && mask[n] == 0 {
		n++
	}
	return c, &At{Header: u.base == atL4, Offset: u.offset + n, Mask: string(mask[n:]), Value: string(value[n:])}, ""
}

// text parses one string match. The kernel searches from the IP header on, and the policy in the payload.
func (r *iptablesRuleReader) text(of []Token, place *location) {
	t := Text{}
	from, to, not, ok := 0, 65535, false, true
	number := func(text string) int {
		n, read := Number(text, 65535)
		ok = ok && read
		return int(n)
	}
	for _, o := range of {
		switch o.Name {
		case "--from":
			from = number(o.Args[0])
		case "--to":
			to = number(o.Args[0])
		case "--string":
			t.Text, not = o.Args[0], o.Not
		case "--hex-string":
			var read bool
			t.Text, read = hexString(o.Args[0])
			not, ok = o.Not, ok && read
		case "--icase":
			t.NoCase = true
		}
	}
	if t.NoCase {
		t.Text = strings.ToLower(t.Text)
	}
	least := ipHeader(place.family) + shortHeader
	udp := len(r.protos) == 1 && r.protos[0] == ProtoUDP
	exact := udp && place.short && from == least && to-least <= MaxWithin
	switch p := (Payload{Texts: []Text{t}}); {
	case !ok || from > least:
		r.unknown("-m string, which begins to look behind the start of the payload")
		return
	case r.rule.Act.Kind == ActReject:
		r.unknown("-m string, of a rule that rejects: on XDP the policy drops by text, and cannot answer")
		return
	default:
		p.Texts[0].Within = min(to-least, MaxWithin)
		if !p.Fits() {
			r.unknown("-m string, of which the policy takes up to 64 bytes that stand in the payload")
			return
		}
		p.Not = not
		r.each(func(c Cond) Cond {
			c = c.Narrowed(searched(exact, p.Texts[0].Within))
			return c.WithPayload(p)
		})
	}
}

// searched says where the policy searches for a text.
func searched(exact bool, within int) string {
	if exact {
		return noOptions
	}
	return fmt.Sprintf("-m string looks in the whole packet, and the policy in the first %d bytes behind the header of TCP, UDP or ICMP", within)
}

// hexString parses text with hexadecimal bytes between bars.
func hexString(text string) (string, bool) {
	var b strings.Builder
	inHex := false
	for part := range strings.SplitSeq(text, "|") {
		if inHex {
			raw, err := hex.DecodeString(strings.Join(strings.Fields(part), ""))
			if err != nil {
				return "", false
			}
			b.Write(raw)
		} else {
			b.WriteString(part)
		}
		inHex = !inHex
	}
	return b.String(), inHex && !strings.Contains(text, `\`)
}
