package importer

import "github.com/floodwall/floodwall/internal/packet"

// reassembled is rules for packets of a family of which connection tracking has put the fragments together, before any
// rule could see them (kernel nf_defrag_ipv4.c, nf_defrag_ipv6_hooks.c): what a packet is a fragment of need not be asked.
// Where nothing is tracked, it returns the rules as they are.
func (rs *ruleset) reassembled(f family, list []flat, rep *report) (out []flat) {
	if !rs.tracks(f) {
		return list
	}
	for _, r := range list {
		if !r.field[packet.Fragment].has(packet.FragmentNone) {
			rep.note(r.at[0], "never met: connection tracking puts fragments together before any rule sees them")
			continue
		}
		r.field[packet.Fragment] = nil
		r.whole = true
		out = append(out, r)
	}
	return out
}

// tracks reports whether rules need connection tracking for packets of a family: by their state, or to translate.
func (rs *ruleset) tracks(f family) bool {
	for _, t := range rs.tables {
		if t.families&f == 0 {
			continue
		}
		for _, c := range t.order {
			if c.tracks() {
				return true
			}
		}
	}
	return false
}

// tracks reports whether c, or one of its rules, needs connection tracking.
func (c *chain) tracks() bool {
	if c.nat && len(c.rules) > 0 {
		return true
	}
	for i := range c.rules {
		for _, a := range c.rules[i].alts {
			if a.field[packet.State] != nil || a.dnat {
				return true
			}
		}
	}
	return false
}
