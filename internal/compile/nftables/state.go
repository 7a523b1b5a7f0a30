// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// forged writes the chain that assigns a conntrack zone of their own to packets from outside whose source is certainly forged. Without the zone, a
// sender could create a connection in this host's name with a first packet, and answer it with a second packet. The kernel has already dropped IPv6
// packets with a multicast source or ::1 (net/ipv6/ip6_input.c). fib regards the IPv4 address 0.0.0.0 as broadcast.
func (n *generator) forged() {
	if !n.plan.AsksState() {
		return
	}
	n.chain("forged", "prerouting priority "+priorityBehindRaw)
	n.line(n.inside(), "accept")
	n.line("ct state untracked accept") // an assigned zone would make conntrack track the packet
	n.line("fib saddr type { local, broadcast, multicast }", setForged)
	n.line("ip6 saddr ::", setForged)
	n.end()
}

var (
	setForged = fmt.Sprintf("ct zone set %d", plan.ForgedZone)
	isForged  = fmt.Sprintf("ct zone %d", plan.ForgedZone)
	notForged = fmt.Sprintf("ct zone != %d", plan.ForgedZone)
)

// stateTerm returns the test of the state of a packet. A packet in the zone of forged sources is never a reply.
func stateTerm(values []ir.Range) term {
	asked := stateWords(values)
	replies := stateWords(ranges.Common(values, ir.Replies.Values, packet.State.Size()))
	if len(replies) == 0 || slices.Contains(asked, "new") { // a packet with a forged source counts as new
		return way("ct state " + strings.Join(asked, ","))
	}
	t := way("ct state " + strings.Join(replies, ",") + " " + notForged)
	if others := asked[len(replies):]; len(others) > 0 { // an invalid or untracked packet has no zone, and fails each test of it
		t = append(t, way("ct state "+strings.Join(others, ","))...)
	}
	return t
}

func stateWords(values []ir.Range) (words []string) {
	for v := range packet.State.Size() {
		if (ir.Match{Values: values}).Has(v) {
			words = append(words, ir.ValueText(packet.State, v))
		}
	}
	return words
}
