// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"strings"

	"golang.org/x/sys/unix"
)

// families are nft's names for the protocol families of enum nf_proto.
var families = map[uint8]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
	unix.NFPROTO_ARP: "arp", unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge",
}

// FamilyName returns nft's name for a family.
func FamilyName(family uint8) string { return families[family] }

// HookName returns nft's name for the hook of a chain. It returns "" for a chain without a hook.
func (c *Chain) HookName() string {
	names := []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	switch {
	case c.Hook == nil || int(c.Hook.Number) >= len(names):
		return ""
	case c.Family == unix.NFPROTO_NETDEV:
		return []string{"ingress", "egress", "", "", "", ""}[c.Hook.Number]
	}
	return names[c.Hook.Number]
}

// types are nft's names for nft's type numbers (enum datatypes of include/datatype.h).
var types = map[uint32]string{2: "nf_proto", 7: "ipv4_addr", 8: "ipv6_addr", 10: "ether_type", 12: "inet_proto", 13: "inet_service", 41: "ifname"}

// Type returns nft's name for the type of a set's keys. The parts of a concatenation are joined by " . ". A part that types does not have is "".
func (s *Set) Type() string {
	const bits = 6 // TYPE_BITS of nft's include/datatype.h
	parts := []string{types[s.KeyType&(1<<bits-1)]}
	for rest := s.KeyType >> bits; rest > 0; rest >>= bits {
		parts = append([]string{types[rest&(1<<bits-1)]}, parts...)
	}
	return strings.Join(parts, " . ")
}
