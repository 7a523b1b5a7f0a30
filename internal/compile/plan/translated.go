package plan

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// SeesTranslated reports whether the filter stage has rules that ask for the destination of packets, while conntrack may have
// translated it. Without a rule by state, and without SYNPROXY, the stage does not make the kernel track connections.
func (pl *Plan) SeesTranslated() bool {
	tracked, asked := pl.Proxies(), false
	for _, s := range pl.At(StageFilter) {
		r := &pl.Program.Rules[s.Rule]
		tracked = tracked || match.Tests(r, packet.State)
		asked = asked || pl.AsksDestination(r)
	}
	return tracked && asked
}

// AsksDestination reports whether a rule asks for the address or the port that a packet goes to.
func (pl *Plan) AsksDestination(r *ir.Rule) bool {
	limited := func(limit int) bool { return pl.Program.Limits[limit].Dst != nil }
	return len(r.Dst) > 0 || match.Tests(r, packet.DPort) || r.Connections != nil && r.Connections.Dst != nil || slices.ContainsFunc(r.Over, limited)
}

// mostAsked is how many ranges of addresses iptables asks conntrack for, which knows no sets.
const mostAsked = 512

// KnowsAsked reports whether iptables can test a set for the destination that a translated packet came in with.
func KnowsAsked(s *ir.Set) bool {
	fixed := s.Fixed()
	return fixed != nil && fixed.Size() <= mostAsked
}
