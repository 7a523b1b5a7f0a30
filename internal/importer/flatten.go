package importer

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/packet"
)

// flatten walks the base chains in the order in which a packet of one family meets them, and returns rules of which
// the first that matches decides; what none matches passes.
//
// With router set, chain INPUT and its like decide about packets to the host, and FORWARD about all others, of which
// only what is dropped for certain is dropped: the kernel's own FORWARD chain sees the rest, and knows more of it. The
// chains with fewer rules come first and decide about all of theirs, so that only their rules ask where a packet goes.
func (rs *ruleset) flatten(f family, devices []string, router bool, rep *report) []flat {
	number := uint32(packet.FamilyIPv4)
	if f == ipv6 {
		number = packet.FamilyIPv6
	}
	all := cond{}.with(packet.Family, only(number))
	w := &walker{family: f, devices: devices, dnat: rs.translates(), marks: rs.marks(f), allowed: maxSteps + stepsPerRule*rs.count()}
	if rs.limits(f) {
		worst := *w
		worst.report, worst.exceeded = &report{}, true
		worst.through(rs, all, router)
		w.worst = fold(worst.out)
	}
	w.report = rep
	return cut(w.through(rs, all, router), rep)
}

// through walks all base chains.
func (w *walker) through(rs *ruleset, all cond, router bool) []flat {
	before := slices.Concat(rs.ingress(w.family, w.devices, w.report), rs.base(w.family, hookPrerouting))
	w.run(before, trail{paths: []cond{all}, sure: true}, false)
	if w.dnat {
		w.publish(rs, all)
	}
	if !router {
		w.run(rs.base(w.family, hookInput), trail{paths: []cond{all}, sure: true}, true)
		return w.out
	}
	here := addrTest{in: &addrSet{local: true, ranges: hereBound}}
	input := func(paths cond) { w.all(rs, hookInput, trail{paths: []cond{paths}, sure: true}) }
	forward := func(paths cond) { w.all(rs, hookForward, trail{paths: []cond{paths}, sure: true, lax: true}) }
	through, _ := all.to(here.not()).possible(w.family)
	rejects := rs.any(w.family, func(r *rule) bool { return r.act.kind == actReject })
	if rejects && !rs.tracks(w.family) {
		// A rule that rejects would run at the device's hook, which does not know what the rules for the host before it
		// pass: each rule asks for itself.
		in, _ := all.to(here).possible(w.family)
		input(in)
		forward(through)
		return w.out
	}
	if rs.weight(hookForward) <= rs.weight(hookInput) {
		forward(through)
		input(all)
	} else {
		in, _ := all.to(here).possible(w.family)
		input(in)
		forward(all)
	}
	return w.out
}

// all walks the base chains of a hook, and decides about all packets of the trail: what comes behind need not ask which
// packets those were.
func (w *walker) all(rs *ruleset, h hook, t trail) {
	n := len(w.out)
	w.run(rs.base(w.family, h), t, true)
	if last := len(w.out) - 1; last >= n && w.out[last].over == nil && w.out[last].covers(&t.paths[0]) {
		return
	}
	name := "forwarded"
	if h == hookInput {
		name = "to-host"
	}
	w.out = append(w.out, flat{cond: t.paths[0], verdict: pass, name: name, at: []place{{file: rs.file}}})
}

// weight is how many rules the chains of a hook have together, with those that they lead to.
func (rs *ruleset) weight(h hook) (n int) {
	for _, t := range rs.tables {
		for c := range t.reached(func(c *chain) bool { return c.hook == h && !c.nat }) {
			n += len(c.rules)
		}
	}
	return n
}

// count is the number of rules.
func (rs *ruleset) count() (n int) {
	for _, t := range rs.tables {
		for _, c := range t.order {
			n += len(c.rules)
		}
	}
	return n
}

// any reports whether something holds for a rule of a family.
func (rs *ruleset) any(f family, holds func(*rule) bool) bool {
	for _, t := range rs.tables {
		for _, c := range t.order {
			for i := range c.rules {
				if t.families&f != 0 && holds(&c.rules[i]) {
					return true
				}
			}
		}
	}
	return false
}

// limits reports whether a rule asks for a rate.
func (rs *ruleset) limits(f family) bool {
	return rs.any(f, func(r *rule) bool {
		return r.act.kind != actNone && slices.ContainsFunc(r.alts, func(c cond) bool { return c.limit != nil })
	})
}

// marks reports whether a rule marks packets.
func (rs *ruleset) marks(f family) bool { return rs.any(f, func(r *rule) bool { return r.marks }) }

// hereBound are the addresses of no host to which packets are for this host, too.
var hereBound = append(slices.Clone(multicast), netipx.RangeOfPrefix(netip.MustParsePrefix("255.255.255.255/32")))

// run walks base chains one after the other. In the last of them to accept is to pass, when last is set.
func (w *walker) run(chains []*chain, t trail, last bool) {
	chains = slices.DeleteFunc(chains, func(c *chain) bool {
		return c.nat || len(c.rules) == 0 && c.policy.kind != actDrop
	})
	for i, c := range chains {
		t.final = last && i == len(chains)-1
		w.base(c, t)
	}
}

// ingress lists the base chains of nft at devices, of which all or none must have one.
func (rs *ruleset) ingress(f family, devices []string, rep *report) (list []*chain) {
	for _, c := range rs.base(f, hookIngress) {
		n := 0
		for _, d := range devices {
			if slices.Contains(c.devices, d) {
				n++
			}
		}
		switch n {
		case len(devices):
			list = append(list, c)
		case 0:
			c.visited = true
			rep.note(c.policyAt, "%s", deviceTest{names: c.devices}.aside(devices))
		default:
			c.visited = true
			rep.lose(c.policyAt, "it is for some of the policy's devices only")
		}
	}
	return list
}

// cut ends a list behind the first rule that every packet meets, and takes away what passes at its end.
func cut(list []flat, rep *report) []flat {
	for i := range list {
		if list[i].everything() && list[i].over == nil {
			for _, f := range list[i+1:] {
				rep.shadow(f, list[i])
			}
			list = list[:i+1]
			break
		}
	}
	n := len(list)
	for n > 0 && list[n-1].verdict == pass && list[n-1].over == nil {
		n--
	}
	return list[:n]
}

// everything reports whether c holds for every packet of its family.
func (c cond) everything() bool {
	for f, v := range c.field {
		if v != nil && packet.Field(f) != packet.Family {
			return false
		}
	}
	return c.src == addrTest{} && c.dst == addrTest{}
}

// routes reports whether a base chain for forwarded packets has rules.
func (rs *ruleset) routes() bool {
	for _, t := range rs.tables {
		for _, c := range t.order {
			if c.hook == hookForward && len(c.rules) > 0 && !c.nat {
				return true
			}
		}
	}
	return false
}

// translates reports whether any rule translates destinations.
func (rs *ruleset) translates() bool {
	return rs.any(ipv4|ipv6, func(r *rule) bool {
		return slices.Contains([]string{"DNAT", "REDIRECT", "NETMAP", "dnat", "redirect"}, r.act.target)
	})
}
