// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// reassembled adapts the rules for a family whose fragments are reassembled by connection tracking before any rule can see
// them (kernel nf_defrag_ipv4.c, nf_defrag_ipv6_hooks.c): it removes their tests of fragments. If nothing is tracked, it
// returns the rules unchanged.
func reassembled(rs *saved.Ruleset, f saved.Family, list []flat, rep *saved.Report) (out []flat) {
	if !tracks(rs, f) {
		return list
	}
	for _, r := range list {
		if !r.Field[packet.Fragment].Has(packet.FragmentNone) {
			rep.Note(r.at[0], "never met: connection tracking puts fragments together before any rule sees them")
			continue
		}
		r.Field[packet.Fragment] = nil
		r.Whole = true
		out = append(out, r)
	}
	return out
}

// tracks reports whether rules need connection tracking for packets of a family: to test a state, or to translate
// addresses.
func tracks(rs *saved.Ruleset, f saved.Family) bool {
	for _, t := range rs.Tables {
		if t.Families&f == 0 {
			continue
		}
		for _, c := range t.Order {
			if chainTracks(c) {
				return true
			}
		}
	}
	return false
}

// chainTracks reports whether c, or one of its rules, needs connection tracking.
func chainTracks(c *saved.Chain) bool {
	if c.NAT && len(c.Rules) > 0 {
		return true
	}
	for i := range c.Rules {
		for _, a := range c.Rules[i].Alts {
			if a.Field[packet.State] != nil || a.DNAT {
				return true
			}
		}
	}
	return false
}
