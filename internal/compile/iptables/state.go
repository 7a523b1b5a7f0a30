// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// forged adds the chain that assigns a conntrack zone of their own to packets from outside whose source is certainly forged. Without the zone, a
// sender could create a connection in this host's name with a first packet, and answer it with a second packet.
func (f *familyBuilder) forged() {
	if !f.pl.AsksState() {
		return
	}
	t := f.rawTable()
	c := &chain{name: f.mainChain("FORGED")}
	t.chains = append(t.chains, c)
	for _, tests := range f.forgedSources() {
		c.add("%s-m comment --comment forged -j CT --zone %d", tests, plan.ForgedZone)
	}
}

// forgedSources returns tests for sources that no host outside can have. The kernel has already dropped IPv6 packets with a multicast source or ::1
// (net/ipv6/ip6_input.c). addrtype regards the IPv4 address 0.0.0.0 as BROADCAST.
func (f *familyBuilder) forgedSources() []lineTests {
	if f.family == packet.FamilyIPv4 {
		return []lineTests{{match: []string{"-m addrtype --src-type LOCAL,BROADCAST,MULTICAST"}}}
	}
	return []lineTests{{match: []string{"-m addrtype --src-type LOCAL"}}, {addrs: []addrTest{{prefix: unspecified6}}}}
}

// honest returns the condition that a packet's source is none of forgedSources. It tests the source, because iptables has no match for the zone.
func (f *familyBuilder) honest() condition {
	if f.family == packet.FamilyIPv4 {
		return matching("-m addrtype ! --src-type LOCAL,BROADCAST,MULTICAST")
	}
	return all(lineTests{addrs: []addrTest{{not: true, prefix: unspecified6}}, match: []string{"-m addrtype ! --src-type LOCAL"}})
}

var unspecified6 = netip.PrefixFrom(netip.IPv6Unspecified(), 128)

var stateWords = [...]string{
	packet.StateNew: "NEW", packet.StateEstablished: "ESTABLISHED", packet.StateRelated: "RELATED",
	packet.StateInvalid: "INVALID", packet.StateUntracked: "UNTRACKED",
}

// stateTest returns the condition that a packet has one of the given states. A packet with a forged source is never a reply.
func (f *familyBuilder) stateTest(values []ir.Range) condition {
	replies := ranges.Common(values, ir.Replies.Values, packet.State.Size())
	if len(replies) == 0 || (ir.Match{Values: values}).Has(packet.StateNew) { // a packet with a forged source counts as new
		return states(values)
	}
	test := states(replies).and(f.honest())
	if others := ranges.Common(values, noReply, packet.State.Size()); len(others) > 0 {
		test.any = append(test.any, states(others).any...)
	}
	return test
}

// noReply are the states of packets that are not replies.
var noReply = ranges.Complement(ir.Replies.Values, packet.State.Size())

// answersNone returns the condition that a packet is not a reply.
func (f *familyBuilder) answersNone() condition {
	forged := states(ir.Replies.Values).and(condition{any: f.forgedSources()})
	return condition{any: append(states(noReply).any, forged.any...)}
}

func states(values []ir.Range) condition {
	rest := ranges.Complement(values, packet.State.Size())
	if len(rest) == 1 && rest[0].First == rest[0].Last {
		return matching("-m conntrack ! --ctstate " + stateWords[rest[0].First])
	}
	var words []string
	for s, word := range stateWords {
		if (ir.Match{Values: values}).Has(uint32(s)) {
			words = append(words, word)
		}
	}
	return matching("-m conntrack --ctstate " + strings.Join(words, ","))
}
