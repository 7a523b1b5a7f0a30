// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Payload is a test of a packet's bytes. It matches if all of At match and, unless Texts is empty, at least one of Texts is found.
// Not inverts the result.
type Payload struct {
	At    []At
	Texts []Text
	Not   bool
}

// At is a test of bytes at a fixed offset. A byte of the packet under its mask must be equal to the byte of Value.
type At struct {
	Header      bool // Offset counts from the L4 header, not from the payload
	Offset      int
	Value, Mask string // both have the same length
}

// Text is a search for a text in the first Within bytes of the payload.
type Text struct {
	Text   string
	NoCase bool
	Within int
}

// Limits of the policy (policy/payload.go).
const (
	MaxWithin = 1024
	mostText  = 64
	maxPlace  = 16
)

// Fits reports whether a policy can express the test.
func (p *Payload) Fits() bool {
	for _, a := range p.At {
		if a.Offset < 0 || a.Offset > MaxWithin || len(a.Value) == 0 || len(a.Value) > maxPlace || strings.Trim(a.Mask, "\x00") == "" {
			return false
		}
	}
	for _, t := range p.Texts {
		if t.Text == "" || len(t.Text) > mostText || t.Within < len(t.Text) || t.Within > MaxWithin {
			return false
		}
	}
	return len(p.At)+len(p.Texts) > 0
}

// String returns p in the policy's notation.
func (p *Payload) String() string {
	var words []string
	if len(p.Texts) > 0 {
		var texts []string
		for _, t := range p.Texts {
			texts = append(texts, byteText(t.Text))
		}
		words = append(words, "contains: "+listText(texts))
		if p.Texts[0].NoCase {
			words = append(words, "nocase: true")
		}
		words = append(words, fmt.Sprintf("within: %d", p.Texts[0].Within))
	}
	var places []string
	for _, a := range p.At {
		place := fmt.Sprintf("{offset: %d, bytes: %s", a.Offset, byteText(a.Value))
		if strings.Count(a.Mask, "\xff") < len(a.Mask) {
			place += ", mask: " + hexText(a.Mask)
		}
		if a.Header {
			place += ", from: header"
		}
		places = append(places, place+"}")
	}
	if places != nil {
		words = append(words, "at: "+listText(places))
	}
	return "{" + strings.Join(words, ", ") + "}"
}

func listText(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// byteText returns text in quotes. Printable characters are unchanged; others are in hexadecimal between bars.
func byteText(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		n := i
		for n < len(text) && plainByte(text[n]) {
			n++
		}
		b.WriteString(text[i:n])
		for i = n; n < len(text) && !plainByte(text[n]); {
			n++
		}
		if n > i {
			fmt.Fprintf(&b, "|% x|", text[i:n])
		}
		i = n
	}
	return `"` + b.String() + `"`
}

func plainByte(c byte) bool { return c >= ' ' && c < 0x7f && c != '|' && c != '"' && c != '\\' }

func hexText(text string) string { return fmt.Sprintf(`"|% x|"`, text) }

// WithPayload returns c with a further test of bytes.
func (c Cond) WithPayload(p Payload) Cond {
	if slices.ContainsFunc(c.Payload, func(q Payload) bool { return q.same(p) }) {
		return c
	}
	c.Payload = append(slices.Clip(c.Payload), p)
	if _, _, ok := c.Payloads(); !ok || !p.Fits() {
		return c.WithUnknown("bytes that the policy cannot name together")
	}
	return c
}

func (p Payload) same(q Payload) bool { return p.Not == q.Not && p.String() == q.String() }

// Payloads returns the tests of bytes of c as two keys of the policy: `is` for payload, and `not` for payload under not. Each is nil if there is no
// such test. ok is false if the keys cannot express the tests.
func (c *Cond) Payloads() (is, not *Payload, ok bool) {
	for _, p := range c.Payload {
		switch {
		case p.Not && not == nil:
			not = &p
		case p.Not && len(not.At)+len(p.At) == 0 && not.alike(p):
			not = &Payload{Texts: slices.Concat(not.Texts, p.Texts), Not: true}
		case p.Not:
			return nil, nil, false
		case is == nil:
			is = &p
		case len(is.Texts) > 0 && len(p.Texts) > 0:
			return nil, nil, false
		default:
			is = &Payload{At: slices.Concat(is.At, p.At), Texts: slices.Concat(is.Texts, p.Texts)}
		}
	}
	return is, not, true
}

// alike reports whether the texts of p and q are searched for in the same way.
func (p *Payload) alike(q Payload) bool {
	return p.Texts[0].NoCase == q.Texts[0].NoCase && p.Texts[0].Within == q.Texts[0].Within
}

// asksBytes reports whether only packets with certain bytes can match c.
func (c *Cond) asksBytes() bool {
	return slices.ContainsFunc(c.Payload, func(p Payload) bool { return !p.Not })
}

// forProto returns p with offsets from the payload instead of the header, if the protocol's header has a fixed length.
func (p Payload) forProto(proto Values) Payload {
	if proto == nil || !proto.Within(Only(ProtoUDP, ProtoICMP, ProtoICMPv6)) {
		return p
	}
	p.At = slices.Clone(p.At)
	for i, a := range p.At {
		if a.Header && a.Offset >= 8 {
			p.At[i].Header, p.At[i].Offset = false, a.Offset-8
		}
	}
	return p
}

// withBytes are the protocols whose headers and payloads the policy can read.
var withBytes = Only(ProtoICMP, ProtoTCP, ProtoUDP, ProtoICMPv6)

// OfBytes completes c, which must be the condition of a whole rule. If the tests of bytes have no equivalent, or if the rule tests more packets than
// the policy can, it adds the reason to c. later is true if the rule also reads later fragments, as if these began with a header.
func (c Cond) OfBytes(later bool) Cond {
	if len(c.Payload) == 0 {
		return c
	}
	proto := c.Implied()[packet.Proto]
	c.Payload = slices.Clone(c.Payload)
	for i, p := range c.Payload {
		c.Payload[i] = p.forProto(proto)
	}
	switch {
	case proto == nil || !proto.Within(withBytes) && len(proto.And(withBytes)) > 0:
		c = c.Narrowed("the policy reads the bytes of TCP, UDP and ICMP alone")
	case len(proto.And(withBytes)) == 0:
		c.Payload = nil
		return c.WithUnknown("bytes of a protocol other than TCP, UDP and ICMP")
	}
	atPlace := slices.ContainsFunc(c.Payload, func(p Payload) bool { return len(p.At) > 0 })
	if f := c.Field[packet.Fragment]; later && atPlace && !c.needsPorts() && (f == nil || f.Has(packet.FragmentLater)) {
		c = c.Narrowed("it reads later fragments as if they had a header, and the policy does not")
	}
	return c
}

// needsPorts reports whether c tests a field of the L4 header for which the policy has a key.
func (c *Cond) needsPorts() bool {
	return slices.ContainsFunc(Dependents, func(d dependent) bool { return !c.Field[d.Field].Has(d.none) })
}
