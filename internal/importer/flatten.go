// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"slices"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// flatten follows the base chains in the order in which a packet of one family passes them. It returns rules of which the first match decides; a
// packet that matches none passes.
//
// With router, chain INPUT and similar ones decide about packets to the host, and FORWARD decides about all other packets. The policy drops only
// those other packets that are certain to be dropped, because the kernel's own FORWARD chain sees the rest and knows more about it. The chains with
// fewer rules come first and decide about all their packets, so that only their rules test the destination.
func flatten(rs *saved.Ruleset, f saved.Family, devices []string, router bool, rep *saved.Report) []flat {
	number := uint32(packet.FamilyIPv4)
	if f == saved.IPv6 {
		number = packet.FamilyIPv6
	}
	all := saved.Cond{}.With(packet.Family, saved.Only(number))
	w := &follower{family: f, devices: devices, dnat: translates(rs), marks: marksPackets(rs, f), allowed: maxSteps + stepsPerRule*countRules(rs)}
	if limits(rs, f) {
		worst := *w
		worst.report, worst.exceeded = &saved.Report{}, true
		worst.through(rs, all, router)
		w.worst = fold(worst.out)
	}
	w.report = rep
	return cut(w.through(rs, all, router), rep)
}

// through follows all base chains.
func (w *follower) through(rs *saved.Ruleset, all saved.Cond, router bool) []flat {
	before := slices.Concat(ingress(rs, w.family, w.devices, w.report), rs.Base(w.family, saved.HookPrerouting))
	w.run(before, trail{paths: []saved.Cond{all}, sure: true}, false)
	if w.dnat {
		w.publish(rs, all)
	}
	if !router {
		w.run(rs.Base(w.family, saved.HookInput), trail{paths: []saved.Cond{all}, sure: true}, true)
		return w.out
	}
	here := saved.AddrTest{In: &saved.AddrSet{Local: true, Ranges: saved.HereBound}}
	input := func(paths saved.Cond) {
		w.all(rs, saved.HookInput, trail{paths: []saved.Cond{paths}, sure: true})
	}
	forward := func(paths saved.Cond) {
		w.all(rs, saved.HookForward, trail{paths: []saved.Cond{paths}, sure: true, passUnknown: true})
	}
	through, _ := all.To(here.Not()).Possible(w.family)
	rejects := anyRule(rs, w.family, func(r *saved.Rule) bool { return r.Act.Kind == saved.ActReject })
	if rejects && !tracks(rs, w.family) {
		// A rule that rejects would run at the device's hook. That hook does not know which packets the rules for the host pass before it. So each
		// rule tests the destination itself.
		in, _ := all.To(here).Possible(w.family)
		input(in)
		forward(through)
		return w.out
	}
	if weight(rs, saved.HookForward) <= weight(rs, saved.HookInput) {
		forward(through)
		input(all)
	} else {
		in, _ := all.To(here).Possible(w.family)
		input(in)
		forward(all)
	}
	return w.out
}

// all follows the base chains of a hook. It decides about every packet of the trail. So later rules need not test whether a packet belongs to the
// trail.
func (w *follower) all(rs *saved.Ruleset, h saved.Hook, t trail) {
	n := len(w.out)
	w.run(rs.Base(w.family, h), t, true)
	if last := len(w.out) - 1; last >= n && w.out[last].over == nil && w.out[last].Covers(&t.paths[0]) {
		return
	}
	name := "forwarded"
	if h == saved.HookInput {
		name = "to-host"
	}
	w.out = append(w.out, flat{Cond: t.paths[0], verdict: pass, name: name, at: []saved.Place{{File: rs.File}}})
}

// weight returns the number of rules in the chains of a hook and in all chains that they lead to.
func weight(rs *saved.Ruleset, h saved.Hook) (n int) {
	for _, t := range rs.Tables {
		for c := range reached(t, func(c *saved.Chain) bool { return c.Hook == h && !c.NAT }) {
			n += len(c.Rules)
		}
	}
	return n
}

// countRules returns the number of rules.
func countRules(rs *saved.Ruleset) (n int) {
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			n += len(c.Rules)
		}
	}
	return n
}

// anyRule reports whether holds returns true for a rule of a family.
func anyRule(rs *saved.Ruleset, f saved.Family, holds func(*saved.Rule) bool) bool {
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			for i := range c.Rules {
				if t.Families&f != 0 && holds(&c.Rules[i]) {
					return true
				}
			}
		}
	}
	return false
}

// limits reports whether any rule tests a rate.
func limits(rs *saved.Ruleset, f saved.Family) bool {
	return anyRule(rs, f, func(r *saved.Rule) bool {
		return r.Act.Kind != saved.ActNone && slices.ContainsFunc(r.Alts, func(c saved.Cond) bool { return c.Limit != nil })
	})
}

// marksPackets reports whether a rule marks packets.
func marksPackets(rs *saved.Ruleset, f saved.Family) bool {
	return anyRule(rs, f, func(r *saved.Rule) bool { return r.Marks })
}

// run follows base chains one after the other. If last is true, accept in the last of them means pass.
func (w *follower) run(chains []*saved.Chain, t trail, last bool) {
	chains = slices.DeleteFunc(chains, func(c *saved.Chain) bool {
		return c.NAT || len(c.Rules) == 0 && c.Policy.Kind != saved.ActDrop
	})
	for i, c := range chains {
		t.final = last && i == len(chains)-1
		w.base(c, t)
	}
}

// ingress returns the nft base chains at devices. Either all devices must have a chain or none.
func ingress(rs *saved.Ruleset, f saved.Family, devices []string, rep *saved.Report) (list []*saved.Chain) {
	for _, c := range rs.Base(f, saved.HookIngress) {
		n := 0
		for _, d := range devices {
			if slices.Contains(c.Devices, d) {
				n++
			}
		}
		switch n {
		case len(devices):
			list = append(list, c)
		case 0:
			c.Visited = true
			rep.Note(c.PolicyAt, "%s", asideOf(saved.DeviceTest{Names: c.Devices}, devices))
		default:
			c.Visited = true
			rep.Lose(c.PolicyAt, "it is for some of the policy's devices only")
		}
	}
	return list
}

// cut ends a list after the first rule that matches every packet. It also removes rules that pass packets at the end of the list.
func cut(list []flat, rep *saved.Report) []flat {
	for i := range list {
		if list[i].Everything() && list[i].over == nil {
			for _, f := range list[i+1:] {
				shadow(rep, f, list[i])
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

// routes reports whether a base chain for forwarded packets has rules.
func routes(rs *saved.Ruleset) bool {
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			if c.Hook == saved.HookForward && len(c.Rules) > 0 && !c.NAT {
				return true
			}
		}
	}
	return false
}

// translates reports whether any rule translates destinations.
func translates(rs *saved.Ruleset) bool {
	return anyRule(rs, saved.IPv4|saved.IPv6, func(r *saved.Rule) bool {
		return slices.Contains([]string{"DNAT", "REDIRECT", "NETMAP", "dnat", "redirect"}, r.Act.Target)
	})
}
