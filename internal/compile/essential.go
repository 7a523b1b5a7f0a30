package compile

import (
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/policy"
)

// IP protocol numbers that have ports here.
const (
	protoTCP = 6
	protoUDP = 17

	protoICMP   = 1
	protoICMPv6 = 58
)

// essentials are the rules that stand between the services and `default: drop`: what a host needs to keep its address,
// its neighbors and a working path MTU. They come last, so any rule of the policy overrides them. RFC 4890 says for
// ICMPv6, RFC 2979 for ICMP, which messages a firewall must not drop.
func essentials() []ir.Rule {
	port := func(n uint16) []policy.Port { return []policy.Port{{Proto: protoUDP, First: n, Last: n}} }
	return []ir.Rule{
		essential("neighbors", policy.Match{
			ICMP: icmpv6(133, 134, 135, 136, 137),
			TTL:  []policy.Range{{First: 255, Last: 255}},
		}),
		essential("multicast", policy.Match{ICMP: icmpv6(130, 131, 132, 143)}), // listener discovery, RFC 3810
		essential("icmp-errors", policy.Match{ICMP: append(icmpv6(1, 2, 3, 4),
			policy.ICMP{Type: 3, Code: -1}, policy.ICMP{Type: 11, Code: -1}, policy.ICMP{Type: 12, Code: -1})}),
		essential("dhcp", policy.Match{SPort: port(67), Port: port(68), Family: []uint32{packet.FamilyIPv4}}),
		essential("dhcpv6", policy.Match{SPort: port(547), Port: port(546), Family: []uint32{packet.FamilyIPv6}}),
	}
}

func essential(name string, m policy.Match) ir.Rule {
	return ir.Rule{Name: "essential:" + name, Kind: ir.RuleKindEssential, Match: fieldMatches(m)}
}

func icmpv6(types ...uint8) []policy.ICMP {
	var out []policy.ICMP
	for _, t := range types {
		out = append(out, policy.ICMP{V6: true, Type: t, Code: -1})
	}
	return out
}
