// SPDX-License-Identifier: Apache-2.0

package importer

import "github.com/floodwall/floodwall/internal/importer/saved"

// rest reports the chains that no packet from outside reaches, or that the policy leaves to the kernel.
func rest(rs *saved.Ruleset, rep *saved.Report, router bool) {
	for _, t := range rs.Tables {
		if t.Families == 0 {
			continue
		}
		incoming := reached(t, func(c *saved.Chain) bool {
			return c.Hook != saved.HookNone && c.Hook != saved.HookOutput && c.Hook != saved.HookForward
		})
		leaving := reached(t, func(c *saved.Chain) bool { return c.Hook == saved.HookOutput })
		forwarded := reached(t, func(c *saved.Chain) bool { return c.Hook == saved.HookForward })
		for _, c := range t.Order {
			switch {
			case translatesOnly(t) && incoming[c]:
				eachRule(c, func(r *saved.Rule) { translating(rs, r, rep) })
			case translatesOnly(t):
				eachRule(c, func(r *saved.Rule) {
					rep.Note(r.At, "translates addresses of packets that leave; keep it where it is")
				})
			case c.Visited:
			case leaving[c]:
				leaves(c, rep)
			case forwarded[c]:
				eachRule(c, func(r *saved.Rule) { rep.Note(r.At, "is about forwarded packets only") })
			case len(c.Rules) > 0:
				eachRule(c, func(r *saved.Rule) { rep.Note(r.At, "no rule leads packets from outside to chain %s", c.Name) })
			}
			forwards(rs, c, rep, router)
		}
	}
}

// translating reports a rule of a chain that translates addresses of incoming packets.
func translating(rs *saved.Ruleset, r *saved.Rule, rep *saved.Report) {
	_, does := r.Translation()
	switch {
	case rep.Published[r.At]:
	case does || r.Act.Kind == saved.ActUnknown:
		rep.Lose(r.At, "%s", saved.Translate)
	default:
		rep.Note(r.At, "is about translating addresses; keep it where it is")
	}
}

// unforwarded adds a note on how the policy treats forwarded packets when the files have no chain for them.
func unforwarded(rs *saved.Ruleset, families saved.Family, rep *saved.Report, router bool) {
	if router || len(rs.Tables) == 0 {
		return
	}
	for _, f := range []saved.Family{saved.IPv4, saved.IPv6} {
		if families&f != 0 && (len(rs.Base(f, saved.HookForward)) == 0 && len(rs.Base(f, saved.HookInput)) > 0) {
			rep.Note(saved.Place{File: rs.File}, "no chain is for forwarded packets, so that these rules pass them: in the policy packets to other hosts meet the rules of those to this one; on a router use --router")
		}
	}
}

// forwards adds a note on how the policy treats forwarded packets when no rule matches them.
func forwards(rs *saved.Ruleset, c *saved.Chain, rep *saved.Report, router bool) {
	if c.Hook != saved.HookForward || c.NAT || router {
		return
	}
	if c.Policy.Kind == saved.ActDrop {
		rep.Note(c.PolicyAt, "has no rules and drops: in the policy packets to other hosts meet the rules of those to this one")
	} else {
		rep.Note(c.PolicyAt, "has no rules and accepts: in the policy packets to other hosts meet the rules of those to this one; on a router use --router")
	}
}

// leaves adds notes about the rules of a chain for outgoing packets, and about its policy if that drops them.
func leaves(c *saved.Chain, rep *saved.Report) {
	eachRule(c, func(r *saved.Rule) {
		rep.Note(r.At, "is about packets that leave, and the policy about those that come in")
	})
	if c.Policy.Kind == saved.ActDrop {
		rep.Note(c.PolicyAt, "drops packets that leave, and the policy is about those that come in")
	}
}

func eachRule(c *saved.Chain, f func(r *saved.Rule)) {
	for i := range c.Rules {
		f(&c.Rules[i])
	}
}

// translatesOnly reports whether t only translates addresses.
func translatesOnly(t *saved.Table) bool {
	is := false
	for _, c := range t.Order {
		if c.Hook != saved.HookNone {
			if !c.NAT {
				return false
			}
			is = true
		}
	}
	return is
}

// reached returns the chains that rules of the chosen base chains lead to.
func reached(t *saved.Table, chosen func(*saved.Chain) bool) map[*saved.Chain]bool {
	found := map[*saved.Chain]bool{}
	var visit func(c *saved.Chain)
	visit = func(c *saved.Chain) {
		if c == nil || found[c] {
			return
		}
		found[c] = true
		for i := range c.Rules {
			if k := c.Rules[i].Act.Kind; k == saved.ActJump || k == saved.ActGoto {
				visit(t.Chains[c.Rules[i].Act.Target])
			}
		}
	}
	for _, c := range t.Order {
		if chosen(c) {
			visit(c)
		}
	}
	return found
}
