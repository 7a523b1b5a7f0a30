// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// holds reports whether all tests of r hold, except those of addresses and fields. Limits are tested last, because only packets for which all other
// tests hold may be charged.
func (e *evaluation) holds(r *Rule) bool {
	if r.Until != 0 && e.Now >= r.Until {
		return false
	}
	if r.Sources != nil && !slices.ContainsFunc(r.Sources, func(p netip.Prefix) bool { return p.Contains(e.pkt.Src) }) {
		return false
	}
	for _, m := range r.Names {
		if !e.nameMatches(m) {
			return false
		}
	}
	for _, m := range r.Payload {
		if m.has(e.pkt) == m.Not {
			return false
		}
	}
	if r.Connections != nil && !e.crowded(r) {
		return false
	}
	if r.Unanswered && (e.Unanswered == nil || !e.Unanswered(e.pkt)) {
		return false
	}
	if !e.asked(r) {
		return false
	}
	return len(r.Over) == 0 || r.Asks == AsksSpent || slices.ContainsFunc(r.Over, e.over)
}

// crowded reports whether the number of connections has reached the rule's limit.
func (e *evaluation) crowded(r *Rule) bool {
	return e.Connections != nil && e.Connections(r, e.pkt) >= int(r.Connections.Most)
}

func (e *evaluation) over(limit int) bool { return e.Over != nil && e.Over(limit, e.pkt) }

func (e *evaluation) nameMatches(m NameMatch) bool {
	if e.pkt.Value[packet.DNS] >= packet.DNSResponse {
		return m.Not
	}
	name := e.pkt.Query.Name()
	return slices.ContainsFunc(m.Sets, func(i int) bool { return e.program.Names[i].Has(name) }) != m.Not
}

// Has reports whether a name, in lower case and without the dot at the end, is in the set.
func (s *NameSet) Has(name string) bool {
	return slices.ContainsFunc(s.Names, func(listed string) bool { return within(name, listed) })
}

// within reports whether a name is equal to the listed name, or below it.
func within(name, listed string) bool {
	rest, ok := strings.CutSuffix(name, listed)
	return ok && (rest == "" || listed == "" || strings.HasSuffix(rest, "."))
}

// has reports whether the payload passes the tests of m. It ignores m.Not.
func (m *PayloadMatch) has(pkt *packet.Packet) bool {
	for _, at := range m.At {
		if !at.has(pkt) {
			return false
		}
	}
	return len(m.Any) == 0 || slices.ContainsFunc(m.Any, func(p Pattern) bool { return p.in(pkt.Payload) })
}

func (a *At) has(pkt *packet.Packet) bool {
	from := pkt.Payload
	if a.Base == BaseL4 {
		from = pkt.L4
	}
	if len(from) < int(a.Offset)+len(a.Value) {
		return false
	}
	for i, mask := range a.Mask {
		if from[int(a.Offset)+i]&mask != a.Value[i] {
			return false
		}
	}
	return true
}

func (p *Pattern) in(payload []byte) bool {
	payload = payload[:min(len(payload), int(p.Within))]
	if p.NoCase {
		payload = packet.LowerASCII(payload)
	}
	return bytes.Contains(payload, p.Text)
}
