// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// EssentialNames are the names of the rules that `default: drop` adds by itself, in the order of their tests. The rule echo is added only if the
// policy names it.
var EssentialNames = names(essentials)

// essentials are the keys of essential. The value of each is read by oneEssential.
var essentials = []key[Policy]{
	{name: "neighbors", value: value[Policy]{schema: essentialSchema},
		doc:      "Neighbor discovery of IPv6 with hop limit 255. When left out: 1000/s per source, 20000/s in all.",
		examples: `"off"`},
	{name: "routers", value: value[Policy]{schema: essentialSchema},
		doc: "Router advertisements and redirects from link-local addresses with hop limit 255. When left out: 100/s per source, 1000/s in " +
			"all.", examples: `"off"`},
	{name: "multicast", value: value[Policy]{schema: essentialSchema},
		doc: "Multicast listener discovery, and IGMP with TTL 1. When left out: 100/s per source, 1000/s in all.", examples: `"off"`},
	{name: "icmp-errors", value: value[Policy]{schema: essentialSchema},
		doc:      "ICMP destination unreachable, time exceeded and parameter problem. When left out: 1000/s per /24, 10000/s in all.",
		examples: `{"limit": "5000/s"}`},
	{name: "icmpv6-errors", value: value[Policy]{schema: essentialSchema},
		doc:      "ICMPv6 destination unreachable, packet too big, time exceeded and parameter problem. When left out: 1000/s per /48, 10000/s in all.",
		examples: `{"limit": "5000/s"}`},
	{name: "dhcp", value: value[Policy]{schema: essentialSchema},
		doc: "Answers of DHCP servers and relays, with a limit of their own for those that the host knows from its leases and default " +
			"routes. When left out: 20/s of the known ones, 20/s of all others.", examples: `{"limit": "5000/s"}`},
	{name: "dhcpv6", value: value[Policy]{schema: essentialSchema},
		doc: "Answers of DHCPv6 servers and relays, with a limit of their own for link-local addresses. When left out: 100/s from " +
			"link-local addresses, 20/s from all others.", examples: `{"limit": "5000/s"}`},
	{name: "fragments", value: value[Policy]{schema: essentialSchema},
		doc: "Later fragments, which have no ports. The kernel delivers a datagram only when its first fragment passes as well. When left " +
			"out: for each family 1000/s per /24 or /48, 10000/s in all.", examples: `"off"`},
	{name: "echo", value: value[Policy]{schema: essentialSchema},
		doc: "Echo requests, so that others can ping the host, and echo replies. `on` has limits for each family: 100/s per /24 or /48, " +
			"1000/s in all. When left out: no such rule.", examples: `"on"`},
}

var essentialSchema = define("essential", anyOf(switchSchema, object(essentialKeys)).titled("`on`, `off` or `{limit}`"))

// Essential is a policy's setting of one of the rules that `default: drop` adds by itself.
type Essential struct {
	Pos    Pos
	Name   string // of EssentialNames
	On     bool   // the rule has its usual limits
	Off    bool   // the rule does not exist: the default decides its packets
	Limits []Over // replace the usual limits, unless On or Off is set; nil: the rule has no limit
}

// essential parses the key essential.
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
	{name: "limit",
		value: into(form[[]Over]{anyOf(totalRate.schema, ratesSchema), place.essentialLimits}, func(to *Essential) *[]Over { return &to.Limits }),
		doc:   "The rate that may pass. Packets above it are dropped and counted as `essential:NAME:limited`.", examples: `"5000/s"`,
		must: "write limit: 1000/s, or limit: off"},
}

// oneEssential parses the value of one essential rule: on, off, or a mapping.
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
		readKeys(p.in("%s", e.Key), "it", e.Value, essentialKeys, &out)
	}
	return out
}

// essentialLimits parses limits: off, one rate for all sources, or limits in the form of `over`.
func (p place) essentialLimits(key string, v *node) []Over {
	if isOff(v) {
		return nil
	}
	if v.Kind == yamltree.Word {
		if o := p.rateForAll(key, v, rateOrOff); o != nil {
			return []Over{*o}
		}
		return nil
	}
	limits := p.overs(key, v)
	for _, o := range limits {
		if o.Ban != nil {
			p.errorf(o.Pos, "limit must not ban: the sources of such packets are easily forged").Hint = "remove ban"
		}
	}
	return limits
}

// essentialNotes returns notes about essential settings that have no effect.
func essentialNotes(pol *Policy) []Note {
	if pol.Default == Drop || len(pol.Essential) == 0 {
		return nil
	}
	return []Note{{pol.Essential[0].Pos, "essential has no effect: it is about rules that `default: drop` has"}}
}
