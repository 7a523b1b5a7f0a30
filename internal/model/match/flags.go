// SPDX-License-Identifier: Apache-2.0

package match

import (
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Field returns a test of a field for values in ranges.
func Field(f packet.Field, list ...ir.Range) ir.Match {
	return ir.Match{Field: f, Values: ranges.Normalize(list)}
}

// Flags returns a test of the TCP flags for the values for which has is true.
func Flags(has func(uint32) bool) ir.Match {
	var list []ir.Range
	for v := range uint32(packet.FlagsNone) {
		if has(v) {
			list = append(list, ranges.Span(v, v))
		}
	}
	return Field(packet.Flags, list...)
}

// Tests of packet.Flags: for a segment that opens a connection, for a segment that acknowledges, and for both kinds. Rules with SYNPROXY need
// SYNOrACK, because SYNPROXY accepts only these two kinds. Its nft statement would also answer a SYN-ACK, and so reflect a flood of SYN-ACKs
// (net/netfilter/nft_synproxy.c).
var (
	SYN      = Flags(func(v uint32) bool { return v&0x17 == 0x02 })                   // of FIN, SYN, RST and ACK, only SYN is set
	ACK      = Flags(func(v uint32) bool { return v&0x17 == 0x10 })                   // of these, only ACK is set
	SYNOrACK = Flags(func(v uint32) bool { return v&0x17 == 0x02 || v&0x17 == 0x10 }) // of these, only SYN or only ACK is set
)
