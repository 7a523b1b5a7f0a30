package importer

import "strings"

// doubtful does what r does to packets that perhaps meet it, since it asks what the policy cannot.
//
// Where packets come to the host, such a rule is left out, and those after it are asked. A rule that takes packets out
// of a chain cannot be left out so, as what follows would drop too much: none of those packets meet the rest of the chain.
// Where packets are forwarded (lax), what the rule accepts is passed, and nothing is dropped that it might have accepted.
func (p *passage) doubtful(r *rule, conds []cond) {
	why := strings.Join(conds[0].unknown, ", ")
	for i := range conds {
		conds[i].unknown = nil
	}
	switch r.act.kind {
	case actAccept:
		p.perhapsAccepts(r, conds, why)
	case actDrop, actReject:
		p.report.lose(r.at, "%s: it drops some packets that the policy may pass", why)
	case actReturn:
		if p.chain.inert(p.rest, map[*chain]bool{}) {
			return // whether it does or not, the packets meet no verdict
		}
		p.report.lose(r.at, "%s: it takes some packets out of chain %s", why, p.chain.name)
		p.perhapsLeaves(r, conds)
	case actJump, actGoto:
		p.perhapsEnters(r, conds, why)
	case actUnknown:
		for _, c := range conds {
			p.finds(r, []cond{c.withUnknown(why)})
		}
		p.report.lose(r.at, "%s, %s: the policy asks the next rules", why, r.act.target)
	}
}

func (p *passage) perhapsAccepts(r *rule, conds []cond, why string) {
	switch {
	case p.lax:
		p.report.lose(r.at, "%s: the policy passes packets that it does not accept", why)
		n := len(p.out)
		p.emit(r, conds, pass, false)
		for i := range p.out[n:] {
			p.out[n+i].wide = true
		}
		if p.asksNothing(&rule{at: r.at, alts: known(r.alts)}) {
			p.total, p.wide = true, &r.at
		}
	case p.final:
		p.report.lose(r.at, "%s: it accepts some packets that the policy may drop", why)
	default:
		p.report.lose(r.at, "%s: it spares some packets the rest of chain %s", why, p.chain.name)
		p.exits = append(p.exits, conds...)
		p.perhapsLeaves(r, conds)
	}
}

// known is conds without what has no equal.
func known(conds []cond) (out []cond) {
	for _, c := range conds {
		c.unknown, c.marks = nil, nil
		out = append(out, c)
	}
	return out
}

// perhapsLeaves goes on when some of the packets, nobody knows which, have left the chain.
func (p *passage) perhapsLeaves(r *rule, conds []cond) {
	if p.lax {
		p.sure, p.leaks = false, true
		return
	}
	p.leave(conds)
	p.doubt = &r.at
}

func (p *passage) perhapsEnters(r *rule, conds []cond, why string) {
	if t := p.chain.table.chains[r.act.target]; t != nil && r.act.kind == actJump && t.inert(t.rules, map[*chain]bool{}) {
		t.visited = true
		p.report.note(r.at, "%s: chain %s gives no verdict", why, t.name)
		return
	}
	if p.lax {
		p.report.lose(r.at, "%s: the policy passes what chain %s accepts, and drops nothing for it", why, r.act.target)
		p.enter(&rule{at: r.at, act: action{kind: actJump, target: r.act.target}}, conds, false)
		return
	}
	p.report.lose(r.at, "%s: the policy does not ask chain %s", why, r.act.target)
	p.loseChain(r.act.target, r.at)
	if r.act.kind == actGoto {
		p.perhapsLeaves(r, conds)
	}
}

// loseChain reports all rules that are asked only after a jump without equal.
func (p *passage) loseChain(name string, at place) {
	c := p.chain.table.chains[name]
	if c == nil || p.lost[c] {
		return
	}
	if p.lost == nil {
		p.lost = map[*chain]bool{}
	}
	p.lost[c] = true
	c.visited = true
	for i := range c.rules {
		r := &c.rules[i]
		if r.act.kind == actNone && len(r.side) == 0 {
			if r.act.logs {
				p.report.note(r.at, "%s", onlyLogs)
			}
			continue
		}
		p.report.lose(r.at, "it is asked only after %s, which has no equal", where(at))
		if r.act.kind == actJump || r.act.kind == actGoto {
			p.loseChain(r.act.target, at)
		}
	}
}

// inert reports whether some of the rules of c give no packet a verdict, nor do those of the chains that they lead to.
// seen are the chains that are looked into already.
func (c *chain) inert(rules []rule, seen map[*chain]bool) bool {
	if c.policy.kind == actDrop {
		return false
	}
	for i := range rules {
		r := &rules[i]
		switch r.act.kind {
		case actNone, actReturn:
			if len(r.side) > 0 {
				return false
			}
		case actJump, actGoto:
			t := c.table.chains[r.act.target]
			if t == nil {
				return false
			}
			if !seen[t] {
				seen[t] = true
				if !t.inert(t.rules, seen) {
					return false
				}
			}
		default:
			return false
		}
	}
	return true
}
