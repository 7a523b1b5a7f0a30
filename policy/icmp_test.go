// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"testing"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// TestMessageWords parses the words for messages, which must mean the same messages. It has each type alone and beside the type of the same name.
func TestMessageWords(t *testing.T) {
	whole := func(first uint32) ranges.Range { return ranges.Span(first, first+255) }
	for kind := range uint32(256) {
		for _, values := range [][]ranges.Range{{whole(kind << 8)}, {whole(packet.ICMPv6 + kind<<8)}, {ranges.Span(kind<<8+4, kind<<8+5), whole(packet.ICMPv6 + kind<<8)}} {
			list := messagesOf(values)
			for _, m := range slices.Clone(list) {
				if _, twin := m.named(); twin != nil && !twin.V6 { // those of IPv4 are first
					list = append([]ICMP{*twin}, list...)
					values = append([]ranges.Range{whole(uint32(twin.Type) << 8)}, values...)
				}
			}
			var back []ICMP
			for _, word := range MessageWords(values) {
				some, flaw := icmp(word)
				if flaw != nil {
					t.Fatalf("%s: %s", word, flaw.msg)
				}
				back = append(back, some...)
			}
			slices.SortFunc(back, func(a, b ICMP) int { return slices.Index(list, a) - slices.Index(list, b) })
			if !slices.Equal(back, list) {
				t.Errorf("%v: %v, want %v", values, MessageWords(values), list)
			}
		}
	}
	for word, values := range map[string][]ranges.Range{
		"echo-request": {whole(8 << 8), whole(packet.ICMPv6 + 128<<8)}, "icmp/echo-request": {whole(8 << 8)}, "packet-too-big": {whole(packet.ICMPv6 + 2<<8)},
		"icmp/3/4": {ranges.Span(3<<8+4, 3<<8+4)}, "icmpv6/200": {whole(packet.ICMPv6 + 200<<8)},
	} {
		if got := MessageWords(values); !slices.Equal(got, []string{word}) {
			t.Errorf("%v, want %s", got, word)
		}
	}
}
