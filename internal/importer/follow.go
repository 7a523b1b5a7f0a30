package importer

import (
	"slices"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// flat is a rule of the policy: the first whose cond holds decides.
type flat struct {
	saved.Cond
	verdict verdict
	comment string
	wide    bool          // it passes more than what it stands for
	over    *saved.Limit  // it decides only what exceeds this
	chain   *saved.Chain  // where it stands, or the first of those that it stands for
	at      []saved.Place // all that it stands for
	entries []saved.Entry // addresses with comments, of those that were made one
	name    string
	behind  bool // of a proxied one: the service is behind this host
}

type verdict uint8

const (
	pass verdict = iota
	drop
	reject
	proxied // a service answers SYNs in its place
)

// String is the policy's word for v.
func (v verdict) String() string { return [...]string{"pass", "drop", "reject", "pass"}[v] }

// maxPaths is on how many ways packets may come to a rule before it counts as having no equal: each makes one rule.
const maxPaths = 512

// Following takes a number of steps that the rules' number bounds: chains that lead to each other can have more ways through
// them than anybody can follow.
const (
	maxSteps     = 40_000 // packets that meet a rule, on one way
	stepsPerRule = 40
)

// follower goes through the chains as a packet of one family does, and writes down rules of which the first that matches
// decides.
type follower struct {
	family  saved.Family
	devices []string
	dnat    bool // some rule translates destinations
	report  *saved.Report
	out     []flat
	stack   []*saved.Chain
	hook    saved.Hook // of the base chain that is followed

	lost    map[*saved.Chain]bool           // chains that are named as lost
	entered map[*saved.Chain][]saved.Cond   // packets that have been in a chain
	limits  map[*saved.Chain][]*saved.Limit // of a chain that was entered, and of those that it leads to

	marks      bool   // some rule marks packets
	exceeded   bool   // what would happen if every limit were exceeded
	worst      []flat // the rules that say it, when this is the other follower
	before     []flat // those of out up to folded, folded
	folded     int
	published  []published // what rules translate
	translated bool        // the packets' destination has been translated
	spent      int         // steps so far
	allowed    int
}

// exhausted reports whether it has taken all its steps.
func (w *follower) exhausted() bool { return w.spent > w.allowed }

// trail is where a follower is: on which ways packets get here, and what happens to them.
type trail struct {
	paths       []saved.Cond
	final       bool // no base chain follows, so that to accept is to pass
	passUnknown bool // what has no equal is passed; see doubt.go
	sure        bool // all packets of paths get here; if not, only passing is sound
}

// base follows a base chain for packets on t.paths.
func (w *follower) base(c *saved.Chain, t trail) {
	all := t.paths
	w.hook = c.Hook
	p := w.follow(c, t)
	kind := saved.ActAccept
	if c.Policy.Kind == saved.ActDrop {
		kind = saved.ActDrop
	}
	if p.passesAll != nil && kind == saved.ActDrop {
		p.report.Lose(c.PolicyAt, "it comes after %s, which has no equal: the policy passes all that gets there", where(*p.passesAll))
	}
	if kind == saved.ActAccept && !t.final || p.decided {
		return
	}
	p.paths, p.left, p.doubt = all, p.exits, nil
	p.act(&saved.Rule{At: c.PolicyAt, Act: saved.Action{Kind: kind}}, true)
}

// follow follows a chain.
func (w *follower) follow(c *saved.Chain, t trail) *traversal {
	p := &traversal{follower: w, trail: t, chain: c}
	c.Visited = true
	if slices.Contains(w.stack, c) {
		w.report.Lose(c.PolicyAt, "chain %s leads to itself: the policy does not follow it again", c.Name)
		return p
	}
	w.stack = append(w.stack, c)
	for i := range c.Rules {
		p.rest = c.Rules[i+1:]
		p.rule(&c.Rules[i])
	}
	w.stack = w.stack[:len(w.stack)-1]
	return p
}
