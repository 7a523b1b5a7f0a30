package match

import (
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// Field is a test of a field for values in ranges.
func Field(f packet.Field, list ...ir.Range) ir.Match {
	return ir.Match{Field: f, Values: ranges.Normalize(list)}
}

// Flags is a test of the TCP flags, for the values that has reports.
func Flags(has func(uint32) bool) ir.Match {
	var list []ir.Range
	for v := range uint32(packet.FlagsNone) {
		if has(v) {
			list = append(list, ranges.Span(v, v))
		}
	}
	return Field(packet.Flags, list...)
}

// The values of packet.Flags of what begins a connection, of what comes back, and of what SYNPROXY takes: both. Its nft
// statement would answer a SYN-ACK too, and so reflect a flood of them (net/netfilter/nft_synproxy.c).
var (
	SYN      = Flags(func(v uint32) bool { return v&0x17 == 0x02 })                   // of FIN, SYN, RST, ACK: SYN
	ACK      = Flags(func(v uint32) bool { return v&0x17 == 0x10 })                   // ACK
	SYNOrACK = Flags(func(v uint32) bool { return v&0x17 == 0x02 || v&0x17 == 0x10 }) // or ACK
)
