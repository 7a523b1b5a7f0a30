package importer

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
)

// passage is a chain as far as it was walked.
type passage struct {
	*walker
	trail
	chain *chain
	rest  []rule // those behind the one at hand
	left  []cond // packets that have left the chain, and are still in paths
	// accepted is how many of left were accepted; the others stay in the base chain.
	accepted int
	exits    []cond // packets that are accepted, and go on to the next base chain
	doubt    *place // a rule that takes some packets out of the chain, nobody knows which
	stuck    bool   // there are too many ways
	leaks    bool   // packets have left the chain without a verdict
	total    bool   // all packets have got a verdict
	wide     *place // the rule that passes them all, as it has no equal
}

// rule walks one rule.
func (p *passage) rule(r *rule) {
	p.aside(r)
	if r.act.kind != actNone {
		p.act(r, false)
	}
}

// aside reports what a rule does besides its verdict, if packets can meet it.
func (p *passage) aside(r *rule) {
	mute := r.act.kind == actNone && r.asksUnknown()
	if len(r.side) == 0 && !r.act.logs && !mute {
		return
	}
	certain, doubtful, limited := p.meeting(r)
	if len(certain)+len(doubtful)+len(limited) == 0 {
		return
	}
	for _, s := range r.side {
		if s == remembers {
			p.report.note(r.at, "%s", s)
		} else {
			p.report.lose(r.at, "%s", s)
		}
	}
	switch {
	case r.act.logs && r.act.kind != actNone:
		p.report.note(r.at, "%s", alsoLogs)
	case r.act.logs && len(r.side) == 0:
		p.report.note(r.at, "%s", onlyLogs)
	case mute && len(r.side) == 0 && len(doubtful) > 0:
		p.report.note(r.at, "%s: gives no verdict, and the policy leaves it out", strings.Join(doubtful[0].unknown, ", "))
	}
}

// What is noted of rules that log.
const (
	onlyLogs = "logs packets, and the policy does not; it changes no verdict"
	alsoLogs = "logs packets besides its verdict, and the policy does not"
)

// asksUnknown reports whether r asks what the policy cannot. Some of that has an effect of its own: `-m recent --set`
// remembers the sender (iptables-extensions(8)).
func (r *rule) asksUnknown() bool {
	return slices.ContainsFunc(r.alts, func(c cond) bool { return c.unknown != nil })
}

// act does what a rule does to the packets that meet it.
func (p *passage) act(r *rule, policy bool) {
	if p.total || len(p.paths) == 0 && !policy {
		return
	}
	if p.mustSettle(r) {
		p.settle()
	}
	if p.stuck {
		p.report.lose(r.at, "packets get here in more ways than rules can tell apart")
		return
	}
	certain, doubtful, limited := p.meeting(r)
	if p.doubt != nil && len(certain)+len(doubtful)+len(limited) > 0 {
		p.report.lose(r.at, "it comes after %s, which takes some packets out of the chain: the policy asks it of none of those",
			where(*p.doubt))
		p.loseChain(r.act.target, *p.doubt)
	}
	if len(certain)+len(doubtful)+len(limited) > 0 {
		p.report.meets(r.at)
	}
	if len(limited) > 0 {
		certain = append(certain, p.limited(r, limited)...)
	}
	p.certain(r, certain, policy)
	if len(doubtful) > 0 {
		p.doubtful(r, doubtful)
	}
	if p.total && len(p.paths) > 0 {
		p.total = !p.leaks
		p.paths = nil
	}
	if p.wide != nil {
		p.loseRest()
	}
}

// loseRest reports the rules behind one that is widened to all packets.
func (p *passage) loseRest() {
	for i := range p.rest {
		if r := &p.rest[i]; r.act.kind != actNone {
			p.report.lose(r.at, "it comes after %s, which has no equal: the policy passes all that gets there", where(*p.wide))
			p.loseChain(r.act.target, r.at)
		}
	}
}

// mustSettle reports whether packets that have left must be taken out of the paths before r: not if r only lets more of
// them leave in the same way. So thousands of such rules in a row are taken out at once.
func (p *passage) mustSettle(r *rule) bool {
	switch r.act.kind {
	case actReturn:
		return false
	case actAccept:
		return p.final || len(p.left) > p.accepted
	}
	return true
}

// asksNothing reports whether every packet on the paths meets r.
func (p *passage) asksNothing(r *rule) bool {
	if r.alts == nil {
		return true
	}
	return slices.ContainsFunc(r.alts, func(c cond) bool {
		through, ok := p.applies(c, r)
		return ok && through.unknown == nil && through.limit == nil && through.narrower == nil && through.everything() && through.field[packet.Family] == nil
	})
}

// where is a place's line, for a message about another line of the file.
func where(at place) string {
	_, line, _ := strings.Cut(at.String(), at.file)
	if at.line > 0 {
		return "line " + strings.TrimPrefix(line, ":")
	}
	return strings.TrimPrefix(line, ": ")
}

// meeting is the packets that meet r: certainly, when r asks what the policy cannot perhaps, and when r asks for a rate
// those that it counts.
func (p *passage) meeting(r *rule) (certain, doubtful, limited []cond) {
	alts := r.alts
	if alts == nil {
		alts = []cond{{}}
	}
	for _, a := range alts {
		a, ok := p.applies(a, r)
		if !ok {
			continue
		}
		for _, path := range p.paths {
			p.spent++
			c, ok := path.and(a).possible(p.family)
			switch {
			case !ok:
			case c.unknown != nil:
				doubtful = append(doubtful, c)
			case c.limit != nil:
				limited = append(limited, c)
			default:
				certain = append(certain, c)
			}
		}
	}
	return certain, doubtful, limited
}

// certain does what r does to packets that meet it for certain.
func (p *passage) certain(r *rule, conds []cond, policy bool) {
	for _, c := range conds {
		for _, n := range c.narrower {
			p.report.lose(r.at, "%s", n)
		}
	}
	switch r.act.kind {
	case actAccept:
		if p.final {
			p.emit(r, conds, pass, policy)
			p.total = p.asksNothing(r)
			return
		}
		p.exits = append(p.exits, conds...)
		p.leave(conds)
		p.accepted += len(conds)
	case actDrop, actReject:
		p.drops(r, conds, policy)
	case actReturn:
		p.leave(conds)
	case actJump, actGoto:
		p.enter(r, conds, p.sure)
	case actUnknown:
		p.finds(r, conds)
		if len(conds) > 0 {
			p.report.lose(r.at, "%s has no equal: the policy asks the next rules", r.act.target)
		}
	}
}

// drops writes down a drop, if it is sure that packets get to it.
func (p *passage) drops(r *rule, conds []cond, policy bool) {
	v := drop
	if r.act.kind == actReject {
		v = reject
	}
	if !p.sure && len(conds) > 0 {
		p.report.lose(r.at, "drops, but which packets get here has no equal: the policy may pass them")
		return
	}
	p.emit(r, conds, v, policy)
	p.total = p.asksNothing(r)
}

// enter walks the chain that r jumps or goes to.
func (p *passage) enter(r *rule, conds []cond, sure bool) {
	target := p.chain.table.chains[r.act.target]
	if target == nil || len(conds) == 0 {
		if target == nil {
			p.report.lose(r.at, "chain %s is not in the file", r.act.target)
		}
		return
	}
	if p.exhausted() {
		p.report.lose(r.at, "the chains lead on in too many ways to follow: the policy does not ask chain %s", r.act.target)
		p.loseChain(r.act.target, r.at)
		return
	}
	fresh := p.fresh(target, conds, sure)
	q := p.walk(target, trail{paths: fresh, final: p.final, lax: p.lax, sure: sure})
	p.exits = append(p.exits, q.exits...)
	p.leave(q.exits)
	switch {
	case q.total && len(fresh) == len(conds):
		if p.total = p.asksNothing(r); p.total {
			p.wide = q.wide
		}
	case r.act.kind == actGoto:
		p.leave(conds)
	}
}

// maxEntries is how many ways into a chain are remembered.
const maxEntries = 32

// fresh is conds without those whose packets have all been in a chain: it would do with them again what it did.
func (p *passage) fresh(c *chain, conds []cond, sure bool) (fresh []cond) {
	if !sure {
		return conds
	}
	known := p.entered[c]
	for _, e := range conds {
		if !slices.ContainsFunc(known, func(k cond) bool { return k.covers(&e) }) {
			fresh = append(fresh, e)
		}
	}
	if p.entered == nil {
		p.entered = map[*chain][]cond{}
	}
	if len(known)+len(fresh) <= maxEntries {
		p.entered[c] = append(known, fresh...)
	}
	return fresh
}

// leave takes packets out of the chain.
func (p *passage) leave(conds []cond) {
	p.left = append(p.left, conds...)
	p.leaks = p.leaks || len(conds) > 0
}

// emit writes rules down.
func (p *passage) emit(r *rule, conds []cond, v verdict, policy bool) {
	for _, c := range conds {
		f := flat{cond: c, verdict: v, comment: r.comment, chain: p.chain, at: []place{r.at}}
		f.devices, f.marks, f.narrower = nil, nil, nil
		if policy {
			f.name = strings.ToLower(p.chain.hookName) + "-policy"
		}
		p.out = append(p.out, f)
	}
}

// settle takes the packets that have left out of the paths.
func (p *passage) settle() {
	for _, gone := range fold(p.bareLeft()) {
		var rest []cond
		p.spent += len(p.paths)
		for _, path := range p.paths {
			rest = append(rest, path.without(gone.cond, p.family)...)
		}
		if p.paths = rest; len(rest) > maxPaths {
			p.stuck = true
			break
		}
	}
	p.left, p.accepted = nil, 0
}

// bareLeft is what has left, as rules that can be folded: thousands of addresses become one set.
func (p *passage) bareLeft() (out []flat) {
	for _, c := range p.left {
		out = append(out, flat{cond: c})
	}
	return out
}

// applies is c for packets that come in through the policy's devices; ok is false when none of those meets it, and when
// c asks for what no rule does.
func (p *passage) applies(c cond, r *rule) (through cond, ok bool) {
	if c.dnat && !p.dnat {
		p.report.note(r.at, "is about translated destinations, and no rule of the files translates any")
		return c, false
	}
	if c.dnat && !p.translated {
		c = c.withUnknown("whether the destination was translated")
	}
	for _, t := range c.devices {
		n := 0
		for _, d := range p.devices {
			if t.holds(d) {
				n++
			}
		}
		switch {
		case n == 0:
			p.report.note(r.at, "%s", t.aside(p.devices))
			return c, false
		case n < len(p.devices):
			c = c.withUnknown("device " + strings.Join(t.names, ", "))
		}
	}
	c.devices = nil
	return p.marked(c, r)
}

// marked is c without its tests of marks. A packet from outside has none until a rule gives it one; where some rule does,
// the policy cannot tell.
func (p *passage) marked(c cond, r *rule) (through cond, ok bool) {
	for _, m := range c.marks {
		switch {
		case p.marks:
			c = c.withUnknown(m.of)
		case m.value == 0 == m.not:
			p.report.note(r.at, "never met: no rule of the files marks packets, and one without a mark does not meet %s", m.of)
			return c, false
		}
	}
	c.marks = nil
	return c, true
}
