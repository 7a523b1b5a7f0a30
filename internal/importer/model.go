package importer

import (
	"fmt"
	"slices"
	"time"

	"go4.org/netipx"
)

// ruleset is what was read from the files, in the words of netfilter: tables of chains of rules.
type ruleset struct {
	file   string   // the first, for messages about the whole
	files  []string // all, without directories
	tables []*table
	sets   []*set
}

// table is a table of rules.
type table struct {
	families family
	kind     string // as messages name it: `filter`, `inet firewalld`
	chains   map[string]*chain
	order    []*chain
	line     place
}

// hook is the place on a packet's way where a base chain is asked; the order is that of the way.
type hook uint8

const (
	hookNone hook = iota // no base chain
	hookIngress
	hookPrerouting
	hookInput
	hookForward
	hookOutput // and all that comes after the packets that the host got
)

// chain is a list of rules. One with a hook is a base chain.
type chain struct {
	name     string
	table    *table
	hook     hook
	hookName string
	priority int
	nat      bool // translates addresses
	policy   action
	policyAt place
	devices  []string // of an ingress chain
	rules    []rule
	visited  bool
}

// rule is one rule: what it asks and what it does.
type rule struct {
	at      place
	comment string
	alts    []cond // any of them; nil is every packet
	act     action
	side    []string // what it does beside that, and the policy does not

	options []token       // of its target
	to      *destination  // of nft's target that translates destinations
	notrack bool          // takes packets out of connection tracking
	marks   bool          // gives packets a mark
	recent  *recentOption // remembers addresses, or asks for those that are remembered
}

// action is what a rule does with a packet.
type action struct {
	kind   actionKind
	target string // the chain of a jump or goto; what else has no equal
	logs   bool
}

type actionKind uint8

const (
	actNone    actionKind = iota // no verdict: the next rule is asked
	actAccept                    // the base chain is done
	actDrop                      // the packet is gone
	actReject                    // the same, and its sender is told
	actReturn                    // the chain is done
	actJump                      // another chain is asked, then the next rule
	actGoto                      // another chain is asked instead of what is left of this one
	actUnknown                   // a verdict without equal
)

// place is where a rule stands, for messages.
type place struct {
	file string
	line int    // 0 when the format has none; then at tells
	at   string // `table inet filter, chain input, handle 5`
	text string // the rule
}

func (p place) String() string {
	if p.line > 0 {
		return fmt.Sprintf("%s:%d", p.file, p.line)
	}
	if p.at != "" {
		return fmt.Sprintf("%s: %s", p.file, p.at)
	}
	return p.file
}

// set is a set of addresses, or of addresses with ports, that rules refer to.
type set struct {
	name    string // in its file
	scope   string // of nft: family and table
	at      place
	family  family
	dims    []dim
	entries []entry
	ranges  []netipx.IPRange // the addresses of the entries, once all are read
	lists   []*set           // of a list of sets
	dynamic bool             // rules or programs fill it
	timeout time.Duration
	max     int
	problem string // why it cannot be used; it follows the set's name

	final string // its name in the policy
}

// dim is one part of the entries of a set.
type dim uint8

const (
	dimAddr dim = iota
	dimPort
)

// base lists the base chains of a hook for packets of one family, in the order in which they are asked.
func (rs *ruleset) base(f family, h hook) (list []*chain) {
	for _, t := range rs.tables {
		for _, c := range t.order {
			if c.hook == h && t.families&f != 0 {
				list = append(list, c)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *chain) int { return a.priority - b.priority })
	return list
}

// chain makes a chain, or returns the one that has this name.
func (t *table) chain(name string) *chain {
	if c := t.chains[name]; c != nil {
		return c
	}
	c := &chain{name: name, table: t}
	t.chains[name] = c
	t.order = append(t.order, c)
	return c
}

// String names c for messages.
func (c *chain) String() string { return fmt.Sprintf("table %s, chain %s", c.table.kind, c.name) }
