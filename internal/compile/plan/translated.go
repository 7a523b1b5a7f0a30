// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// SeesTranslated reports whether the filter stage has rules that test the destination of packets and conntrack may have translated that destination
// (NAT). If no rule tests the state or uses SYNPROXY, the stage does not make the kernel track connections.
func (pl *Plan) SeesTranslated() bool {
	tracked, asked := pl.Proxies(), false
	for _, s := range pl.At(StageFilter) {
		r := &pl.Program.Rules[s.Rule]
		tracked = tracked || match.Tests(r, packet.State)
		asked = asked || pl.AsksDestination(r)
	}
	return tracked && asked
}

// AsksDestination reports whether a rule or its limits depend on a packet's destination address or port.
func (pl *Plan) AsksDestination(r *ir.Rule) bool {
	limited := func(limit int) bool { return pl.Program.Limits[limit].Dst != nil }
	return len(r.Dst) > 0 || match.Tests(r, packet.DPort) || r.Connections != nil && r.Connections.Dst != nil || slices.ContainsFunc(r.Over, limited)
}

// mostAsked is the largest number of address ranges that iptables tests with its conntrack match. This match cannot use sets.
const mostAsked = 512

// KnowsAsked reports whether iptables can test the original destination of a translated packet against a set.
func KnowsAsked(s *ir.Set) bool {
	fixed := s.Fixed()
	return fixed != nil && fixed.Size() <= mostAsked
}
