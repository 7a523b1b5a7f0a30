package facts

import (
	"context"
	"net/netip"
)

// SurveyServers is what all of some servers offer: who answers for them must not offer more.
type SurveyServers struct {
	Answered []netip.AddrPort // those that have answered
	Silent   []netip.AddrPort // and who has not
	MSS      [2]uint16        // the smallest in IPv4 and in IPv6; 0 where nobody has answered
	WScale   int              // the smallest: a window taken for smaller than it is does no harm; -1: one has no window scaling
	SACK     bool
	Timestamps,
	ECN bool
}

// together is how long all servers have to answer.
const together = 3 * patience

// SurveyHost probes servers, one after the other from the calling thread's network namespace. Why one does not
// answer is for its own host to say.
func SurveyHost(ctx context.Context, servers []netip.AddrPort) (s SurveyServers) {
	ctx, cancel := context.WithTimeout(ctx, together)
	defer cancel()
	for _, to := range servers {
		o, err := Probe(ctx, to)
		if err != nil {
			s.Silent = append(s.Silent, to)
			continue
		}
		s.add(to, o)
	}
	return s
}

// add takes what a server offers into account.
func (s *SurveyServers) add(from netip.AddrPort, o Offer) {
	if s.Answered == nil {
		s.WScale, s.SACK, s.Timestamps, s.ECN = o.WScale, true, true, true
	}
	s.Answered = append(s.Answered, from)
	s.WScale = min(s.WScale, o.WScale)
	s.SACK, s.Timestamps, s.ECN = s.SACK && o.SACK, s.Timestamps && o.Timestamps, s.ECN && o.ECN
	family := 0
	if from.Addr().Unmap().Is6() {
		family = 1
	}
	if s.MSS[family] == 0 || o.MSS < s.MSS[family] {
		s.MSS[family] = o.MSS
	}
}
