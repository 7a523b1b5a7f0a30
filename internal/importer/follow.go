// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"slices"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// flat is a rule of the policy; the first rule whose cond holds decides.
type flat struct {
	saved.Cond
	verdict verdict
	comment string
	wide    bool          // the rule passes more packets than the rules that it replaces
	over    *saved.Limit  // the rule decides only about packets above this limit
	chain   *saved.Chain  // the chain of the rule that it replaces, or of the first of them
	at      []saved.Place // all rules that it replaces
	entries []saved.Entry // addresses with comments, of joined rules
	name    string
	behind  bool // only for a proxied rule: the service is on a host behind this one
}

type verdict uint8

const (
	pass verdict = iota
	drop
	reject
	proxied // a service answers the SYNs of these packets
)

// String returns the policy's word for v.
func (v verdict) String() string { return [...]string{"pass", "drop", "reject", "pass"}[v] }

// maxPaths is the largest number of paths to a rule. Each path makes one rule, so a rule with more paths is reported as without equal.
const maxPaths = 512

// The number of steps is limited in proportion to the number of rules: chains that jump to each other can have too many paths to follow.
const (
	maxSteps     = 40_000 // a step is a rule that packets meet on one path
	stepsPerRule = 40
)

// follower follows the chains as a packet of one family passes them, and produces rules of which the first match decides.
type follower struct {
	family  saved.Family
	devices []string
	dnat    bool // some rule translates destinations
	report  *saved.Report
	out     []flat
	stack   []*saved.Chain
	hook    saved.Hook // of the current base chain

	lost    map[*saved.Chain]bool           // chains that are named as lost
	entered map[*saved.Chain][]saved.Cond   // packets that have been in a chain
	limits  map[*saved.Chain][]*saved.Limit // the limits of a chain that was entered, and of the chains that it leads to

	marks      bool   // some rule marks packets
	exceeded   bool   // assume that every limit is exceeded
	worst      []flat // the rules of the follower that assumes that every limit is exceeded
	before     []flat // the rules of out up to index folded, joined
	folded     int
	published  []published // packets whose destination rules translate
	translated bool        // the packets' destination has been translated
	spent      int         // steps so far
	allowed    int
}

// exhausted reports whether the follower has taken all its steps.
func (w *follower) exhausted() bool { return w.spent > w.allowed }

// trail is the position of a follower: the paths of the packets that get there, and how they are treated.
type trail struct {
	paths       []saved.Cond
	final       bool // no base chain follows, so accept means pass
	passUnknown bool // packets of rules without equal are passed; see doubt.go
	sure        bool // all packets of paths get here; if not, only passing is safe
}

// base follows a base chain for the packets of t.paths.
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
