// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// withPayload returns the conditions of a rule that tests the payload. Each kind of packets has its own condition, because the position of the
// payload depends on the kind.
func (f *familyBuilder) withPayload(r *ir.Rule) (out []condition) {
	for _, k := range match.PayloadKinds(r) {
		payload := always()
		for _, m := range r.Payload {
			switch {
			case k.Kind == match.LaterFragment && !m.Not:
				payload = condition{}
			case k.Kind == match.LaterFragment: // a later fragment has no payload
			case m.Not:
				payload = payload.and(f.lacks(m, k.Kind))
			default:
				payload = payload.and(f.has(m, k.Kind))
			}
		}
		for _, c := range f.conditions(&k.Rule) {
			if c = c.and(payload); len(c.any) > 0 {
				out = append(out, c)
			}
		}
	}
	return out
}

// has returns the condition that the payload of packets of a kind passes the tests of m. It ignores m.Not.
func (f *familyBuilder) has(m ir.PayloadMatch, kind match.Kind) condition {
	c := always()
	for _, a := range m.At {
		c = c.and(matching(f.atMatch(a, kind, false)))
	}
	if len(m.Any) == 0 {
		return c
	}
	var found condition
	for _, p := range m.Any {
		found.any = append(found.any, lineTests{match: []string{f.searched(false), f.stringMatch(p, false)}})
	}
	return c.and(found)
}

// lacks returns the opposite of has: at least one of the byte tests fails, or the payload contains none of the texts.
func (f *familyBuilder) lacks(m ir.PayloadMatch, kind match.Kind) (c condition) {
	for _, a := range m.At {
		c.any = append(c.any, lineTests{match: []string{f.atMatch(a, kind, true)}})
	}
	if len(m.Any) == 0 {
		return c
	}
	none := lineTests{match: []string{f.searched(false)}}
	for _, p := range m.Any {
		none.match = append(none.match, f.stringMatch(p, true))
	}
	c.any = append(c.any, none, lineTests{match: []string{f.searched(true)}})
	return c
}

// searched returns the test that the payload of a UDP packet is at the position where the string match searches. The string match cannot skip IPv4
// options and IPv6 extension headers.
func (f *familyBuilder) searched(not bool) string {
	return "-m u32 " + negated(not) + [2]string{`--u32 "0>>24&0xF=5"`, `--u32 "3&0xFF=17"`}[f.family]
}

// ipHeader is the size in bytes of an IP header without options, by family.
var ipHeader = [2]int{packet.FamilyIPv4: 20, packet.FamilyIPv6: 40}

// stringMatch returns the match that searches for text in UDP packets without options. Since Linux 6.2, --to is the offset at which the text must end
// (net/core/skbuff.c, skb_find_text). Before, it is the offset at which the text must begin. The algorithm Boyer-Moore would be faster, but it misses
// a text that is split between two memory fragments of a packet. So the algorithm is Knuth-Morris-Pratt.
func (f *familyBuilder) stringMatch(p ir.Pattern, not bool) string {
	from := ipHeader[f.family] + match.L4Header
	text := fmt.Sprintf("-m string %s--hex-string \"|%s|\" --algo kmp --from %d --to %d",
		negated(not), hex.EncodeToString(p.Text), from, from+int(p.Within))
	if p.NoCase {
		text += " --icase"
	}
	return text
}

// atMatch returns the match for bytes at an offset in packets of a kind. In IPv6 it matches no packet with extension headers.
func (f *familyBuilder) atMatch(a ir.At, kind match.Kind, not bool) string {
	var tests []string
	start, offset := "0>>22&0x3C@", int(a.Offset)
	if f.family == packet.FamilyIPv6 {
		start, offset = "", offset+ipHeader[packet.FamilyIPv6]
		tests = []string{"3&0xFF=" + joinRanges(plan.ProtosWithout(kind.Proto(), extensions), ":")}
	}
	switch {
	case a.Base == ir.BaseL4 || kind == match.OtherIPv4 || kind == match.OtherIPv6:
	case kind == match.TCP && f.family == packet.FamilyIPv4:
		start += "12>>26&0x3C@"
	case kind == match.TCP:
		start = "52>>26&0x3C@"
	default:
		offset += match.L4Header
	}
	for at := 0; at < len(a.Value); at += 4 {
		tests = append(tests, start+word(a, at, offset))
	}
	return fmt.Sprintf(`-m u32 %s--u32 "%s"`, negated(not), strings.Join(tests, "&&"))
}

// extensions are the IPv6 extension headers that the packet decoder skips.
var extensions = ranges.Normalize([]ir.Range{ranges.Span(0, 0), ranges.Span(43, 44), ranges.Span(51, 51), ranges.Span(60, 60)})

// word returns the test of up to four bytes of an At, from byte i on. offset is the offset of the At. u32 reads four bytes at once, and all of them
// must be in the packet. So the last bytes are read together with the bytes before them, if there are any.
func word(a ir.At, i, offset int) string {
	var mask, value uint32
	start := max(min(i, len(a.Value)-4), -offset) // -offset: the packet has no bytes before the L4 header or payload
	for n := range 4 {
		mask, value = mask<<8, value<<8
		if at := start + n; at >= i && at < len(a.Value) {
			mask, value = mask|uint32(a.Mask[at]), value|uint32(a.Value[at])
		}
	}
	if mask == 1<<32-1 {
		return fmt.Sprintf("%d=0x%X", offset+start, value)
	}
	return fmt.Sprintf("%d&0x%X=0x%X", offset+start, mask, value)
}
