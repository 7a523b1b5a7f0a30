// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// doubtful handles a rule with a test that the policy cannot make, so that it is unknown which packets the rule matches.
//
// Such a rule is left out, and the rules after it are evaluated. The policy then does not accept the packets that the rule accepts, so nothing is
// opened. A rule that takes packets out of a chain cannot be left out in this way, because the rest of the chain would drop too much. Instead, the
// rest of the chain is applied to none of the rule's packets. There is one exception (passUnknown): forwarded packets of which only the outgoing
// device is unknown. For these, the policy passes the packets that the rule accepts, and drops none that the rule might have accepted. The kernel's own
// rules see these packets later, and know the device.
func (p *traversal) doubtful(r *saved.Rule, conds []saved.Cond) {
	why := strings.Join(conds[0].Unknown, ", ")
	if p.passUnknown && slices.ContainsFunc(conds, func(c saved.Cond) bool { return !knownLater(c) }) {
		p.passUnknown = false
		defer func() { p.passUnknown = true }()
	}
	for i := range conds {
		conds[i].Unknown = nil
	}
	switch r.Act.Kind {
	case saved.ActAccept:
		p.perhapsAccepts(r, conds, why)
	case saved.ActDrop, saved.ActReject:
		p.report.Lose(r.At, "%s: it drops some packets that the policy may pass", why)
	case saved.ActReturn:
		if inert(p.chain, p.rest, map[*saved.Chain]bool{}) {
			return // the packets get no verdict in either case
		}
		p.report.Lose(r.At, "%s: it takes some packets out of chain %s", why, p.chain.Name)
		p.perhapsLeaves(r, conds)
	case saved.ActJump, saved.ActGoto:
		p.perhapsEnters(r, conds, why)
	case saved.ActUnknown:
		for _, c := range conds {
			p.finds(r, []saved.Cond{c.WithUnknown(why)})
		}
		p.report.Lose(r.At, "%s, %s: the policy asks the next rules", why, r.Act.Target)
	}
}

// knownLater reports whether the kernel's rules for forwarded packets know all properties in c that the policy does not know.
func knownLater(c saved.Cond) bool {
	return !slices.ContainsFunc(c.Unknown, func(u string) bool { return u != translatedWhere && !strings.HasPrefix(u, saved.Leaves) })
}

// translatedWhere is unknown until the kernel has translated addresses.
const translatedWhere = "whether the destination was translated"

func (p *traversal) perhapsAccepts(r *saved.Rule, conds []saved.Cond, why string) {
	switch {
	case p.passUnknown:
		p.report.Lose(r.At, "%s: the policy passes packets that it does not accept", why)
		n := len(p.out)
		p.emit(r, conds, pass, false)
		for i := range p.out[n:] {
			p.out[n+i].wide = true
		}
		if p.asksNothing(&saved.Rule{At: r.At, Alts: known(r.Alts)}) {
			p.decided, p.passesAll = true, &r.At
		}
	case p.final:
		p.report.Lose(r.At, "%s: it accepts some packets that the policy may drop", why)
	default:
		p.report.Lose(r.At, "%s: it spares some packets the rest of chain %s", why, p.chain.Name)
		p.exits = append(p.exits, conds...)
		p.perhapsLeaves(r, conds)
	}
}

// known returns conds without the parts that have no equivalent in the policy.
func known(conds []saved.Cond) (out []saved.Cond) {
	for _, c := range conds {
		c.Unknown, c.Marks = nil, nil
		out = append(out, c)
	}
	return out
}

// perhapsLeaves continues after a rule because of which some of the packets may have left the chain.
func (p *traversal) perhapsLeaves(r *saved.Rule, conds []saved.Cond) {
	if p.passUnknown {
		p.sure, p.undecided = false, true
		return
	}
	p.leave(conds)
	p.doubt = &r.At
}

func (p *traversal) perhapsEnters(r *saved.Rule, conds []saved.Cond, why string) {
	if t := p.chain.Table.Chains[r.Act.Target]; t != nil && r.Act.Kind == saved.ActJump && inert(t, t.Rules, map[*saved.Chain]bool{}) {
		t.Visited = true
		p.report.Note(r.At, "%s: chain %s gives no verdict", why, t.Name)
		return
	}
	if p.passUnknown {
		p.report.Lose(r.At, "%s: the policy passes what chain %s accepts, and drops nothing for it", why, r.Act.Target)
		p.enter(&saved.Rule{At: r.At, Alts: known(r.Alts), Act: saved.Action{Kind: saved.ActJump, Target: r.Act.Target}}, conds, false)
		if p.decided && p.passesAll == nil {
			p.passesAll = &r.At
		}
		return
	}
	p.report.Lose(r.At, "%s: the policy does not ask chain %s", why, r.Act.Target)
	p.loseChain(r.Act.Target, r.At)
	if r.Act.Kind == saved.ActGoto {
		p.perhapsLeaves(r, conds)
	}
}

// loseChain reports all rules that are reached only by a jump without equivalent.
func (p *traversal) loseChain(name string, at saved.Place) {
	c := p.chain.Table.Chains[name]
	if c == nil || p.lost[c] {
		return
	}
	if p.lost == nil {
		p.lost = map[*saved.Chain]bool{}
	}
	p.lost[c] = true
	c.Visited = true
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Act.Kind == saved.ActNone && len(r.Side) == 0 {
			if r.Act.Logs {
				p.report.Note(r.At, "%s", onlyLogs)
			}
			continue
		}
		p.report.Lose(r.At, "it is asked only after %s, which has no equal", where(at))
		if r.Act.Kind == saved.ActJump || r.Act.Kind == saved.ActGoto {
			p.loseChain(r.Act.Target, at)
		}
	}
}

// inert reports whether neither the rules nor the rules of the chains that they lead to give any packet a verdict. seen has the chains that were
// examined already.
func inert(c *saved.Chain, rules []saved.Rule, seen map[*saved.Chain]bool) bool {
	if c.Policy.Kind == saved.ActDrop {
		return false
	}
	for i := range rules {
		r := &rules[i]
		switch r.Act.Kind {
		case saved.ActNone, saved.ActReturn:
			if len(r.Side) > 0 {
				return false
			}
		case saved.ActJump, saved.ActGoto:
			t := c.Table.Chains[r.Act.Target]
			if t == nil {
				return false
			}
			if !seen[t] {
				seen[t] = true
				if !inert(t, t.Rules, seen) {
					return false
				}
			}
		default:
			return false
		}
	}
	return true
}
