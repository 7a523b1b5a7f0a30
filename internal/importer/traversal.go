// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// traversal is the state of a follower within a chain.
type traversal struct {
	*follower
	trail
	chain *saved.Chain
	rest  []saved.Rule // the rules after the current one
	left  []saved.Cond // packets that have left the chain, but are not yet removed from paths
	// accepted is the number of elements of left whose packets were accepted. The other packets stay in the same base
	// chain.
	accepted     int
	exits        []saved.Cond // packets that are accepted here, and continue in the next base chain
	doubt        *saved.Place // a rule that takes an unknown part of the packets out of the chain
	tooManyPaths bool         // there are more than maxPaths paths
	undecided    bool         // packets have left the chain without a verdict
	decided      bool         // all packets have got a verdict
	passesAll    *saved.Place // the rule without equal that passes all packets
}

// rule follows one rule.
func (p *traversal) rule(r *saved.Rule) {
	p.aside(r)
	if r.Act.Kind != saved.ActNone {
		p.act(r, false)
	}
}

// aside reports the effects of a rule besides its verdict, if packets can reach it.
func (p *traversal) aside(r *saved.Rule) {
	mute := r.Act.Kind == saved.ActNone && asksUnknown(r)
	if len(r.Side) == 0 && !r.Act.Logs && !mute {
		return
	}
	certain, doubtful, limited := p.meeting(r)
	if len(certain)+len(doubtful)+len(limited) == 0 {
		return
	}
	for _, s := range r.Side {
		if s == saved.Remembers {
			p.report.Note(r.At, "%s", s)
		} else {
			p.report.Lose(r.At, "%s", s)
		}
	}
	switch {
	case r.Act.Logs && r.Act.Kind != saved.ActNone:
		p.report.Note(r.At, "%s", alsoLogs)
	case r.Act.Logs && len(r.Side) == 0:
		p.report.Note(r.At, "%s", onlyLogs)
	case mute && len(r.Side) == 0 && len(doubtful) > 0:
		p.report.Note(r.At, "%s: gives no verdict, and the policy leaves it out", strings.Join(doubtful[0].Unknown, ", "))
	}
}

// The notes about rules that log.
const (
	onlyLogs = "logs packets, and the policy does not; it changes no verdict"
	alsoLogs = "logs packets besides its verdict, and the policy does not"
)

// asksUnknown reports whether r has a test that the policy cannot make. Some such tests have side effects: `-m recent
// --set` remembers the sender (iptables-extensions(8)).
func asksUnknown(r *saved.Rule) bool {
	return slices.ContainsFunc(r.Alts, func(c saved.Cond) bool { return c.Unknown != nil })
}

// act applies a rule to the packets that meet it.
func (p *traversal) act(r *saved.Rule, policy bool) {
	if p.decided || len(p.paths) == 0 && !policy {
		return
	}
	if p.mustRemoveLeft(r) {
		p.removeLeft()
	}
	if p.tooManyPaths {
		p.report.Lose(r.At, "packets get here in more ways than rules can tell apart")
		return
	}
	certain, doubtful, limited := p.meeting(r)
	if p.doubt != nil && len(certain)+len(doubtful)+len(limited) > 0 {
		p.report.Lose(r.At, "it comes after %s, which takes some packets out of the chain: the policy asks it of none of those",
			where(*p.doubt))
		p.loseChain(r.Act.Target, *p.doubt)
	}
	if len(certain)+len(doubtful)+len(limited) > 0 {
		p.report.Meets(r.At)
	}
	if len(limited) > 0 {
		certain = append(certain, p.limited(r, limited)...)
	}
	p.certain(r, certain, policy)
	if len(doubtful) > 0 {
		p.doubtful(r, doubtful)
	}
	if p.decided && len(p.paths) > 0 {
		p.decided = !p.undecided
		p.paths = nil
	}
	if p.passesAll != nil {
		p.loseRest()
	}
}

// loseRest reports the rules after a rule that was widened to all packets.
func (p *traversal) loseRest() {
	for i := range p.rest {
		if r := &p.rest[i]; r.Act.Kind != saved.ActNone {
			p.report.Lose(r.At, "it comes after %s, which has no equal: the policy passes all that gets there", where(*p.passesAll))
			p.loseChain(r.Act.Target, r.At)
		}
	}
}

// mustRemoveLeft reports whether the packets in left must be removed from the paths before r is applied. It returns false if r only lets further
// packets leave in the same way. Then the packets of thousands of such consecutive rules are removed in one step.
func (p *traversal) mustRemoveLeft(r *saved.Rule) bool {
	switch r.Act.Kind {
	case saved.ActReturn:
		return false
	case saved.ActAccept:
		return p.final || len(p.left) > p.accepted
	}
	return true
}

// asksNothing reports whether every packet on the paths meets r.
func (p *traversal) asksNothing(r *saved.Rule) bool {
	if r.Alts == nil {
		return true
	}
	return slices.ContainsFunc(r.Alts, func(c saved.Cond) bool {
		through, ok := p.applies(c, r)
		return ok && through.Unknown == nil && through.Limit == nil && through.Narrower == nil && through.Everything() && through.Field[packet.Family] == nil
	})
}

// where returns the line of a place, for a message about another line of the same file.
func where(at saved.Place) string {
	_, line, _ := strings.Cut(at.String(), at.File)
	if at.Line > 0 {
		return "line " + strings.TrimPrefix(line, ":")
	}
	return strings.TrimPrefix(line, ": ")
}

// meeting divides the packets that reach r. certain contains the packets that r matches for certain. doubtful contains the packets that r may match,
// because r has a test that the policy cannot make. limited contains the packets that r counts, if it tests a rate.
func (p *traversal) meeting(r *saved.Rule) (certain, doubtful, limited []saved.Cond) {
	alts := r.Alts
	if alts == nil {
		alts = []saved.Cond{{}}
	}
	for _, a := range alts {
		a, ok := p.applies(a, r)
		if !ok {
			continue
		}
		for _, path := range p.paths {
			p.spent++
			c, ok := path.And(a).Possible(p.family)
			switch {
			case !ok:
			case c.Unknown != nil:
				doubtful = append(doubtful, c)
			case c.Limit != nil:
				limited = append(limited, c)
			default:
				certain = append(certain, c)
			}
		}
	}
	return certain, doubtful, limited
}

// certain applies r to packets that meet it for certain.
func (p *traversal) certain(r *saved.Rule, conds []saved.Cond, policy bool) {
	for _, c := range conds {
		for _, n := range c.Narrower {
			p.report.Lose(r.At, "%s", n)
		}
	}
	switch r.Act.Kind {
	case saved.ActAccept:
		if p.final {
			p.emit(r, conds, pass, policy)
			p.decided = p.asksNothing(r)
			return
		}
		p.exits = append(p.exits, conds...)
		p.leave(conds)
		p.accepted += len(conds)
	case saved.ActDrop, saved.ActReject:
		p.drops(r, conds, policy)
	case saved.ActReturn:
		p.leave(conds)
	case saved.ActJump, saved.ActGoto:
		p.enter(r, conds, p.sure)
	case saved.ActUnknown:
		p.finds(r, conds)
		if len(conds) > 0 && !p.proxies(r, conds) {
			p.report.Lose(r.At, "%s", r.WithoutEqual())
		}
	}
}

// drops produces a rule that drops or rejects, if the packets are certain to get here.
func (p *traversal) drops(r *saved.Rule, conds []saved.Cond, policy bool) {
	v := drop
	if r.Act.Kind == saved.ActReject {
		v = reject
	}
	if !p.sure && len(conds) > 0 {
		p.report.Lose(r.At, "drops, but which packets get here has no equal: the policy may pass them")
		return
	}
	p.emit(r, conds, v, policy)
	p.decided = p.asksNothing(r)
}

// enter follows the chain that r jumps or goes to.
func (p *traversal) enter(r *saved.Rule, conds []saved.Cond, sure bool) {
	target := p.chain.Table.Chains[r.Act.Target]
	if target == nil || len(conds) == 0 {
		if target == nil {
			p.report.Lose(r.At, "chain %s is not in the file", r.Act.Target)
		}
		return
	}
	if p.exhausted() {
		p.report.Lose(r.At, "the chains lead on in too many ways to follow: the policy does not ask chain %s", r.Act.Target)
		p.loseChain(r.Act.Target, r.At)
		return
	}
	fresh := p.fresh(target, conds, sure)
	q := p.follow(target, trail{paths: fresh, final: p.final, passUnknown: p.passUnknown, sure: sure})
	p.exits = append(p.exits, q.exits...)
	p.leave(q.exits)
	switch {
	case q.decided && len(fresh) == len(conds):
		if p.decided = p.asksNothing(r); p.decided {
			p.passesAll = q.passesAll
		}
	case r.Act.Kind == saved.ActGoto:
		p.leave(conds)
	}
}

// maxEntries is the largest number of conditions that are remembered for a chain that was entered.
const maxEntries = 32

// fresh returns conds without the conditions whose packets have all been in the chain before, because the chain would treat them as before.
func (p *traversal) fresh(c *saved.Chain, conds []saved.Cond, sure bool) (fresh []saved.Cond) {
	if !sure {
		return conds
	}
	known := p.entered[c]
	p.countedAgain(c, conds, known)
	for _, e := range conds {
		if !slices.ContainsFunc(known, func(k saved.Cond) bool { return k.Covers(&e) }) {
			fresh = append(fresh, e)
		}
	}
	if p.entered == nil {
		p.entered = map[*saved.Chain][]saved.Cond{}
	}
	if len(known)+len(fresh) <= maxEntries {
		p.entered[c] = append(known, fresh...)
	}
	return fresh
}

// leave records that packets leave the chain.
func (p *traversal) leave(conds []saved.Cond) {
	p.left = append(p.left, conds...)
	p.undecided = p.undecided || len(conds) > 0
}

// emit produces flat rules.
func (p *traversal) emit(r *saved.Rule, conds []saved.Cond, v verdict, policy bool) {
	for _, c := range conds {
		f := flat{Cond: c, verdict: v, comment: r.Comment, chain: p.chain, at: []saved.Place{r.At}}
		f.Devices, f.Marks, f.Narrower = nil, nil, nil
		if policy {
			f.name = strings.ToLower(p.chain.HookName) + "-policy"
		}
		p.out = append(p.out, f)
	}
}

// removeLeft removes the packets that have left the chain from the paths.
func (p *traversal) removeLeft() {
	for _, gone := range fold(p.bareLeft()) {
		var rest []saved.Cond
		p.spent += len(p.paths)
		for _, path := range p.paths {
			rest = append(rest, path.Without(gone.Cond, p.family)...)
		}
		if p.paths = rest; len(rest) > maxPaths {
			p.tooManyPaths = true
			break
		}
	}
	p.left, p.accepted = nil, 0
}

// bareLeft returns the packets in left as rules that can be folded: thousands of addresses become one set.
func (p *traversal) bareLeft() (out []flat) {
	for _, c := range p.left {
		out = append(out, flat{Cond: c})
	}
	return out
}

// applies returns c for packets that arrive through the policy's devices. ok is false if none of these packets can match c, or if c needs an action
// that no rule of the files performs.
func (p *traversal) applies(c saved.Cond, r *saved.Rule) (through saved.Cond, ok bool) {
	if c.DNAT && !p.dnat {
		p.report.Note(r.At, "is about translated destinations, and no rule of the files translates any")
		return c, false
	}
	if c.Routed {
		if p.sure && (r.Act.Kind == saved.ActDrop || r.Act.Kind == saved.ActReject) && c.Unknown == nil && c.Limit == nil && c.Devices == nil && c.Marks == nil {
			p.report.Checks(r.At)
			p.report.Note(r.At, "is the policy's check source-route, which comes before all rules, and drops IPv4 packets with a source route, too")
			return c, false
		}
		c.Routed = false
		c = c.WithUnknown("the type of a routing header")
	}
	if c.DNAT && !p.translated {
		c = c.WithUnknown(translatedWhere)
	}
	for _, t := range c.Devices {
		n := 0
		for _, d := range p.devices {
			if t.Holds(d) {
				n++
			}
		}
		switch {
		case n == 0:
			p.report.Note(r.At, "%s", asideOf(t, p.devices))
			return c, false
		case n < len(p.devices):
			c = c.WithUnknown("device " + strings.Join(t.Names, ", "))
		}
	}
	c.Devices = nil
	return p.marked(c, r)
}

// marked returns c without its tests of marks. A packet from outside has no mark until a rule gives it one. If any rule
// marks packets, the policy cannot know the result of the test.
func (p *traversal) marked(c saved.Cond, r *saved.Rule) (through saved.Cond, ok bool) {
	for _, m := range c.Marks {
		switch {
		case p.marks:
			c = c.WithUnknown(m.Of)
		case m.Value == 0 == m.Not:
			p.report.Note(r.At, "never met: no rule of the files marks packets, and one without a mark does not meet %s", m.Of)
			return c, false
		}
	}
	c.Marks = nil
	return c, true
}
