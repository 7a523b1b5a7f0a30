// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"net/netip"
)

// SurveyServers has the options that all surveyed servers offer. A program that answers for these servers must not offer more.
type SurveyServers struct {
	Answered []netip.AddrPort // the servers that have answered
	Silent   []netip.AddrPort // the servers that have not answered
	MSS      [2]uint16        // the smallest MSS in IPv4 and in IPv6; 0 if no server has answered
	WScale   int              // the smallest scale, because a window that is assumed too small does no harm; -1: one server has no window scaling
	SACK     bool
	Timestamps,
	ECN bool
}

// together is the time that SurveyHost waits for the answers of all servers.
const together = 2 * patience

// SurveyHost probes servers one after the other, from the calling thread's network namespace. The result does not say why a server has not answered.
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

// add adds the offer of a server to the result.
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
