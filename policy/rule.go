package policy

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// matchKeys are the keys that a rule and its not share.
var matchKeys = []key[Match]{
	{"from", func(p place, to *Match, v *node) { to.From = p.addrs("from", v) }},
	{"to", func(p place, to *Match, v *node) { to.To = p.addrs("to", v) }},
	{"proto", func(p place, to *Match, v *node) { to.Proto = values(p, "proto", v, proto) }},
	{"port", func(p place, to *Match, v *node) { to.Port = values(p, "port", v, port) }},
	{"sport", func(p place, to *Match, v *node) { to.SPort = values(p, "sport", v, port) }},
	{"family", func(p place, to *Match, v *node) { to.Family = values(p, "family", v, readFamily) }},
	{"flags", place.flagsKey},
	{"icmp", func(p place, to *Match, v *node) { to.ICMP = values(p, "icmp", v, icmp) }},
	{"length", func(p place, to *Match, v *node) { to.Length = values(p, "length", v, numbers(65535)) }},
	{"ttl", func(p place, to *Match, v *node) { to.TTL = values(p, "ttl", v, numbers(255)) }},
	{"dscp", func(p place, to *Match, v *node) { to.DSCP = values(p, "dscp", v, dscp) }},
	{"mss", func(p place, to *Match, v *node) { to.MSS = values(p, "mss", v, mss) }},
	{"fragment", func(p place, to *Match, v *node) { to.Fragment = values(p, "fragment", v, readFragment) }},
	{"vlan", func(p place, to *Match, v *node) { to.VLAN = values(p, "vlan", v, vlan) }},
	{"payload", place.payload},
	{"dns", place.dns},
	{"state", func(p place, to *Match, v *node) { to.State = values(p, "state", v, readState) }},
}

// ruleKeys are the keys of a rule. Its name was read before the others, as messages begin with it.
var ruleKeys = slices.Concat(
	[]key[Rule]{{"name", func(place, *Rule, *node) {}}},
	inMatch(matchKeys),
	[]key[Rule]{
		{"over", place.ruleOver},
		{"not", func(p place, to *Rule, v *node) { readKeys(p.in("not"), "it", v, notKeys, &to.Not) }},
		{"then", func(p place, to *Rule, v *node) { to.Then = scalarOf(p, "then", v, then) }},
		{"slip", func(p place, to *Rule, v *node) { to.Slip = scalarOf(p, "slip", v, slip) }},
		{"sample", func(p place, to *Rule, v *node) { to.Sample = scalarOf(p, "sample", v, sample) }},
		{"observe", func(p place, to *Rule, v *node) { to.Observe = scalarOf(p, "observe", v, yesNo) }},
		{"placement", func(p place, to *Rule, v *node) { to.Placement = scalarOf(p, "placement", v, readPlacement) }},
	},
)

// notKeys are the keys of not: matchKeys, some of which mean or allow less there.
var notKeys = append(slices.DeleteFunc(slices.Clone(matchKeys), func(k key[Match]) bool { return k.name == "dns" }),
	key[Match]{"dns", place.notDNS}, key[Match]{"over", place.notOver})

// inMatch makes keys of a rule from keys of its Match.
func inMatch(keys []key[Match]) []key[Rule] {
	var lifted []key[Rule]
	for _, k := range keys {
		l := key[Rule]{name: k.name}
		if k.read != nil {
			l.read = func(p place, to *Rule, v *node) { k.read(p, &to.Match, v) }
		}
		lifted = append(lifted, l)
	}
	return lifted
}

// rules reads the key rules.
func (p place) rules(to *Policy, v *node) {
	p.entries("rules", v, func(i int, n *node) {
		rule := Rule{Pos: n.Pos}
		rule.Name, rule.Named = p.name("rule", n, p.r.madeName(i+1, len(v.Items)))
		in, before := p.in("rule %s", wording.Quote(rule.Name)), len(p.r.errs)
		seen := readKeys(in, "a rule", n, ruleKeys, &rule)
		in.require(n, seen, "then", "say what happens to the packets: then: drop")
		if len(p.r.errs) == before {
			in.truncates(&rule, n)
			in.samples(&rule, n)
			in.connecting(&rule, n)
			in.contradictions(n)
		}
		to.Rules = append(to.Rules, rule)
	})
}

// noteNames remembers the names that entries give themselves.
func (r *reader) noteNames(entries []*node) {
	for _, n := range entries {
		if v := n.Get("name"); v != nil && v.Kind == yamltree.Word {
			r.given[v.Text] = true
		}
	}
}

// madeName is the name of the rule with this number when it has none of its own. Where the policy gives that name to
// another, a number is taken that no rule has, so that no other rule's name changes.
func (r *reader) madeName(number, rules int) string {
	name := fmt.Sprintf("rule-%d", number)
	for free := rules + 1; r.given[name] || r.taken(name); free++ {
		name = fmt.Sprintf("rule-%d", free)
	}
	return name
}

func (r *reader) taken(name string) bool {
	_, taken := r.reasons[name]
	return taken
}

var serviceKeys = []key[Service]{
	{"name", func(place, *Service, *node) {}},
	{"port", func(p place, to *Service, v *node) { to.Port = values(p, "port", v, port) }},
	{"from", func(p place, to *Service, v *node) { to.From = p.addrs("from", v) }},
	{"syn", place.syn},
	{"udp", place.udp},
	{"track", func(p place, to *Service, v *node) { to.Track = scalarOf(p, "track", v, tracking) }},
	{"guard", place.guard},
}

// services reads the key services.
func (p place) services(to *Policy, v *node) {
	p.entries("services", v, func(i int, n *node) {
		s := Service{Pos: n.Pos}
		var named bool
		s.Name, named = p.name("service", n, "")
		in := p.in("service %s", wording.Quote(s.Name))
		if !named {
			in = p.in("service %d", i+1)
		}
		seen := readKeys(in, "a service", n, serviceKeys, &s)
		in.require(n, seen, "name", "name it, as in name: web")
		in.require(n, seen, "port", "say which port it is, as in port: tcp/443")
		in.protectable(&s, n)
		in.protectedOnce(to.Services, s, n)
		in.trackedOneWay(to.Services, s, n)
		in.guardedPorts(&s, n)
		in.guardedOnce(to.Services, s, n)
		in.floodable(to.Services, s, n)
		to.Services = append(to.Services, s)
	})
}

// entries calls f for each entry of v, the list of key.
func (p place) entries(key string, v *node, f func(i int, n *node)) {
	switch v.Kind {
	case yamltree.Nothing, yamltree.Broken:
		return
	case yamltree.List:
		for i, n := range v.Items {
			before := len(p.r.errs)
			f(i, n)
			p.r.unsound[n.Pos] = p.r.unsound[n.Pos] || len(p.r.errs) > before
		}
		return
	}
	e := p.errorf(v.Pos, "%s must be a list, got %s", key, v)
	e.Hint = fmt.Sprintf("begin each of the %s with - in a line of its own", key)
}

// reserved are the reasons that are no rule's, service's or check's name.
var reserved = []string{"default", "not-ip"}

// name reads the name of a rule or service before its other keys, or makes it made. It reports whether n gives one.
func (p place) name(what string, n *node, made string) (name string, given bool) {
	name, at := made, n.Pos
	if v := n.Get("name"); v != nil && v.Kind == yamltree.Word {
		name, given, at = v.Text, true, v.Pos
		if f := nameFlaw(name); f != nil {
			p.flawed(at, "a "+what+"'s name", f)
		}
	} else if v != nil && v.Kind != yamltree.Nothing && v.Kind != yamltree.Broken {
		p.errorf(v.Pos, "a %s's name must be a single word, got %s", what, v)
	}
	if name == "" && !given {
		return "", false
	}
	first, taken := p.r.reasons[name]
	switch {
	case slices.Contains(reserved, name):
		p.errorf(at, "the name %s is taken: it is a reason of its own in counters", wording.Quote(name)).Hint = "choose another name"
	case taken:
		p.errorf(at, "the name %s is used twice, first in line %d", wording.Quote(name), first.Line).Hint =
			"rules and services share their names, as each is a counter: choose another"
	default:
		p.r.reasons[name] = at
	}
	return name, given
}

// sharesCheck reports whether name is a check's name too.
func sharesCheck(name string) bool {
	_, ok := packet.CheckNamed(name)
	return ok
}
