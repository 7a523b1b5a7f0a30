// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// rateText returns a limit in the syntax of nft.
func rateText(l *ir.Limit) string {
	r, _ := plan.RateForNftables(l)
	if l.Bits {
		return fmt.Sprintf("rate over %d bytes/%s burst %d bytes", r.Amount, r.Unit(), r.Burst)
	}
	return fmt.Sprintf("rate over %d/%s burst %d packets", r.Amount, r.Unit(), r.Burst)
}

// overLines returns the statements that test a limit. They follow the other tests of a line. A limit by prefixes has one statement for each family.
func (n *generator) overLines(limit int, p chainInput) []string {
	l := &n.plan.Program.Limits[limit]
	names, ok := n.out.Limits[limit]
	if !ok {
		names = n.addLimit(l)
		n.out.Limits[limit] = names
	}
	if l.Src == nil && l.Dst == nil {
		return []string{fmt.Sprintf("limit name %q", names[0])}
	}
	rate := rateText(l)
	var lines []string
	for family, name := range names {
		lines = append(lines, fmt.Sprintf("update @%s { %s limit %s }", name, prefixKey(l.Src, l.Dst, uint32(family), p), rate))
	}
	return lines
}

// addLimit defines the object of a limit, or the sets for its prefixes. While such a set is full, no prefix can be added to it, and packets of
// further prefixes do not exceed the limit.
func (n *generator) addLimit(l *ir.Limit) (names [2]string) {
	rate := rateText(l)
	base := "rate-" + l.Rule
	if l.Src == nil && l.Dst == nil {
		names[0] = n.names.add(base)
		fmt.Fprintf(&n.stateful, "\tlimit %s { %s }\n\n", names[0], rate)
		return names
	}
	for family := range names {
		names[family] = n.prefixSet(base, uint32(family), l.Src, l.Dst, plan.HeldPrefixes(l.Max),
			fmt.Sprintf("dynamic,timeout\n\t\ttimeout %s", durationText(plan.Drained(l))))
	}
	return names
}

// prefixSet defines a set of prefixes of a family that packets fill. It returns the name of the set.
func (n *generator) prefixSet(base string, family uint32, src, dst *ir.Prefixes, size int, flags string) (name string) {
	name = n.names.add(base + [...]string{packet.FamilyIPv4: "-v4", packet.FamilyIPv6: "-v6"}[family])
	kind := addressTypes[family]
	if src != nil && dst != nil {
		kind += " . " + kind
	}
	fmt.Fprintf(&n.stateful, "\tset %s {\n\t\ttype %s\n\t\tsize %d\n\t\tflags %s\n\t}\n\n", name, kind, size, flags)
	return name
}

// crowdLines returns the statements that test a rule's limit of connections, one for each family. They follow the other tests of a line. They test
// only packets of connections that conntrack has not confirmed yet. Otherwise, a repeated SYN would count in addition to its own connection. It would
// exceed the limit while refused connections are still in the kernel's list (net/netfilter/nf_conncount.c). The sets have no timeout, because the
// kernel removes prefixes without connections (net/netfilter/nft_connlimit.c, nft_connlimit_gc).
func (n *generator) crowdLines(rule int, p chainInput) (lines []string) {
	r := &n.plan.Program.Rules[rule]
	c := r.Connections
	names, ok := n.out.Crowds[rule]
	if !ok {
		for family := range names {
			names[family] = n.prefixSet("connections-"+r.Name, uint32(family), c.Src, c.Dst, plan.HeldPrefixes(c.Max), "dynamic")
		}
		n.out.Crowds[rule] = names
	}
	for family, name := range names {
		lines = append(lines, fmt.Sprintf("ct status & confirmed == 0 add @%s { %s ct count over %d }",
			name, prefixKey(c.Src, c.Dst, uint32(family), p), c.Most))
	}
	return lines
}

// prefixKey returns the expression for the prefixes of a packet's addresses.
func prefixKey(src, dst *ir.Prefixes, family uint32, p chainInput) string {
	var words []string
	for side, prefix := range []*ir.Prefixes{src, dst} {
		if prefix == nil {
			continue
		}
		word := p.address(side, family)
		if m := prefixMask(prefix, family); m != "" {
			word += " & " + m
		}
		words = append(words, word)
	}
	return strings.Join(words, " . ")
}

// prefixMask returns a prefix length as a mask. It returns "" if the prefix is the whole address.
func prefixMask(p *ir.Prefixes, family uint32) string {
	length := [...]int{packet.FamilyIPv4: p.V4, packet.FamilyIPv6: p.V6}[family]
	if length == addressBits[family] {
		return ""
	}
	return maskText(family, length)
}

// addressBits is the length of addresses in bits, by family.
var addressBits = [...]int{packet.FamilyIPv4: 32, packet.FamilyIPv6: 128}

// maskText returns a prefix length as a mask.
func maskText(family uint32, length int) string {
	all := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if family == packet.FamilyIPv6 {
		all = netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	}
	prefix, _ := all.Prefix(length)
	return prefix.Addr().String()
}
