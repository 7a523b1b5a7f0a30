package policy

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// EssentialNames are the rules that `default: drop` has of its own, in the order in which they are asked. It has echo only where
// the policy names it.
var EssentialNames = []string{"neighbors", "routers", "multicast", "icmp-errors", "icmpv6-errors", "dhcp", "dhcpv6", "fragments", "echo"}

// Essential is what a policy says of one of the rules that `default: drop` has of its own.
type Essential struct {
	Pos    Pos
	Name   string // of EssentialNames
	On     bool   // with its usual limits
	Off    bool   // there is no such rule: its packets are left to the default
	Limits []Over // in place of the usual ones, unless On or Off; nil is no limit
}

// essential reads the key essential.
func (p place) essential(to *Policy, v *node) {
	p = p.in("essential")
	pairs, _ := p.pairs("it", v)
	for _, e := range pairs {
		if !slices.Contains(EssentialNames, e.Key) {
			p.unknown(e, EssentialNames)
			continue
		}
		to.Essential = append(to.Essential, p.oneEssential(e))
	}
}

var essentialKeys = []key[Essential]{
	{"limit", func(p place, to *Essential, v *node) { to.Limits = p.essentialLimits(v) }},
}

// oneEssential reads what stands behind the name of a rule: on, off, or a mapping.
func (p place) oneEssential(e pair) Essential {
	out := Essential{Pos: e.Pos, Name: e.Key}
	switch {
	case e.Value.Kind == yamltree.Broken:
	case isSwitch(e.Value):
		out.On, out.Off = !isOff(e.Value), isOff(e.Value)
	case e.Value.Kind != yamltree.Mapping:
		p.errorf(e.Value.Pos, "%s must be on, off or a mapping, got %s", e.Key, e.Value).Hint =
			fmt.Sprintf("write %s: {limit: 1000/s}", e.Key)
	default:
		seen := readKeys(p.in("%s", e.Key), "it", e.Value, essentialKeys, &out)
		p.in("%s", e.Key).require(e.Value, seen, "limit", "write limit: 1000/s, or limit: off")
	}
	return out
}

// essentialLimits reads limits: off, one rate for all, or limits as `over` has them.
func (p place) essentialLimits(v *node) []Over {
	if isOff(v) {
		return nil
	}
	if v.Kind == yamltree.Word {
		if o := p.rateForAll("limit", v, rateOrOff); o != nil {
			return []Over{*o}
		}
		return nil
	}
	limits := p.overs("limit", v)
	for _, o := range limits {
		if o.Ban != nil {
			p.errorf(o.Pos, "limit must not ban: the sources of such packets are easily forged").Hint = "remove ban"
		}
	}
	return limits
}

// essentialNotes are the remarks on what has no effect.
func essentialNotes(pol *Policy) []Note {
	if pol.Default == Drop || len(pol.Essential) == 0 {
		return nil
	}
	return []Note{{pol.Essential[0].Pos, "essential has no effect: it is about rules that `default: drop` has"}}
}
