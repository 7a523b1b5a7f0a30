package importer

// rest reports the chains that no packet from outside meets, or that the policy leaves to the kernel.
func (rs *ruleset) rest(rep *report, router bool) {
	for _, t := range rs.tables {
		if t.families == 0 {
			continue
		}
		incoming := t.reached(func(c *chain) bool { return c.hook != hookNone && c.hook != hookOutput && c.hook != hookForward })
		leaving := t.reached(func(c *chain) bool { return c.hook == hookOutput })
		forwarded := t.reached(func(c *chain) bool { return c.hook == hookForward })
		for _, c := range t.order {
			switch {
			case t.nat() && incoming[c]:
				c.each(func(r *rule) { rs.translating(r, rep) })
			case t.nat():
				c.each(func(r *rule) { rep.note(r.at, "translates addresses of packets that leave; keep it where it is") })
			case c.visited:
			case leaving[c]:
				c.leaves(rep)
			case forwarded[c]:
				c.each(func(r *rule) { rep.note(r.at, "is about forwarded packets only") })
			case len(c.rules) > 0:
				c.each(func(r *rule) { rep.note(r.at, "no rule leads packets from outside to chain %s", c.name) })
			}
			rs.forwards(c, rep, router)
		}
	}
}

// translating reports a rule of a chain that translates addresses of packets that come in.
func (rs *ruleset) translating(r *rule, rep *report) {
	_, does := r.translation()
	switch {
	case rep.published[r.at]:
	case does || r.act.kind == actUnknown:
		rep.lose(r.at, "%s", translate)
	default:
		rep.note(r.at, "is about translating addresses; keep it where it is")
	}
}

// forwards notes what the policy does with packets that the host forwards when no rules do.
func (rs *ruleset) forwards(c *chain, rep *report, router bool) {
	if c.hook != hookForward || c.nat || router {
		return
	}
	if c.policy.kind == actDrop {
		rep.note(c.policyAt, "has no rules and drops: in the policy packets to other hosts meet the rules of those to this one")
	} else {
		rep.note(c.policyAt, "has no rules and accepts: in the policy packets to other hosts meet the rules of those to this one; on a router use --router")
	}
}

// leaves notes the rules for packets that leave, and that some are dropped there.
func (c *chain) leaves(rep *report) {
	c.each(func(r *rule) { rep.note(r.at, "is about packets that leave, and the policy about those that come in") })
	if c.policy.kind == actDrop {
		rep.note(c.policyAt, "drops packets that leave, and the policy is about those that come in")
	}
}

func (c *chain) each(f func(r *rule)) {
	for i := range c.rules {
		f(&c.rules[i])
	}
}

// nat reports whether t translates addresses, and does nothing else.
func (t *table) nat() bool {
	is := false
	for _, c := range t.order {
		if c.hook != hookNone {
			if !c.nat {
				return false
			}
			is = true
		}
	}
	return is
}

// reached is the chains to which rules of the chosen base chains lead.
func (t *table) reached(chosen func(*chain) bool) map[*chain]bool {
	found := map[*chain]bool{}
	var visit func(c *chain)
	visit = func(c *chain) {
		if c == nil || found[c] {
			return
		}
		found[c] = true
		for i := range c.rules {
			if k := c.rules[i].act.kind; k == actJump || k == actGoto {
				visit(t.chains[c.rules[i].act.target])
			}
		}
	}
	for _, c := range t.order {
		if chosen(c) {
			visit(c)
		}
	}
	return found
}
