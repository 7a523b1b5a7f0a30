// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// maxDNSPorts is DNS_PORTS_MAX of bpf/dns.h.
const maxDNSPorts = 8

// dnsPart returns the component with the ports for which the C program parses DNS queries. These are the ports of all rules that test the content of
// queries.
func dnsPart(p *ir.Program) component {
	var asked []ir.Range
	verify := false
	for i := range p.Rules {
		if r := &p.Rules[i]; asksQuery(r) {
			asked = append(asked, queryPorts(r)...)
		}
		verify = verify || tests(&p.Rules[i], packet.Verified)
	}
	ranges := closest(asked, maxDNSPorts)
	if len(ranges) == 0 {
		return component{}
	}
	var ports [maxDNSPorts]struct{ First, Last uint32 }
	for i, r := range ranges {
		ports[i].First, ports[i].Last = r.First, r.Last
	}
	return component{constants: map[string]any{
		"dns_ports":  uint32(len(ranges)),
		"dns_port":   ports,
		"dns_verify": verify,
	}}
}

// mssPart makes the C program read the MSS option of segments with SYN, if a rule tests the MSS.
func mssPart(p *ir.Program) component {
	if slices.ContainsFunc(p.Rules, func(r ir.Rule) bool { return tests(&r, packet.MSS) }) {
		return component{constants: map[string]any{"reads_mss": true}}
	}
	return component{}
}

// asksQuery reports whether a rule tests data that only DNS queries have, or answers queries.
func asksQuery(r *ir.Rule) bool {
	return tests(r, packet.DNS) || tests(r, packet.Verified) || len(r.Names) > 0 || r.Unanswered || r.Verdict == ir.Truncate
}

func tests(r *ir.Rule, f packet.Field) bool {
	return slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == f })
}

// queryPorts returns the UDP destination ports that a rule matches.
func queryPorts(r *ir.Rule) []ir.Range {
	for _, m := range r.Match {
		if m.Field != packet.DPort {
			continue
		}
		var out []ir.Range
		for _, v := range m.Values {
			v.First, v.Last = max(v.First, packet.PortUDP), min(v.Last, packet.PortNone-1)
			if v.First <= v.Last {
				out = append(out, v)
			}
		}
		return out
	}
	return []ir.Range{{First: packet.PortUDP, Last: packet.PortNone - 1}}
}

// closest returns at most most ranges that together contain all given ranges. It joins the ranges with the smallest gaps between them. A packet to a
// port in a gap only costs the time to parse it.
func closest(ranges []ir.Range, most int) []ir.Range {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b ir.Range) int { return int(a.First) - int(b.First) })
	var out []ir.Range
	for _, r := range ranges {
		if n := len(out); n > 0 && r.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
		} else {
			out = append(out, r)
		}
	}
	for len(out) > most {
		near := 1
		for i := 1; i < len(out); i++ {
			if out[i].First-out[i-1].Last < out[near].First-out[near-1].Last {
				near = i
			}
		}
		out[near-1].Last = out[near].Last
		out = slices.Delete(out, near, near+1)
	}
	return out
}
