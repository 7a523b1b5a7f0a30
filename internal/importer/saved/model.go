package saved

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go4.org/netipx"
)

// Ruleset is what was read from the files, in the words of netfilter: tables of chains of rules.
type Ruleset struct {
	File   string   // the first, for messages about the whole
	Files  []string // all, without directories
	Tables []*Table
	Sets   []*Set

	Geo       string // a database of countries, for rules that ask for those
	countries map[string]*Set
}

// Country is the set of the addresses of countries.
func (rs *Ruleset) Country(codes []string) *Set {
	key := strings.Join(codes, "-")
	if rs.countries[key] == nil {
		if rs.countries == nil {
			rs.countries = map[string]*Set{}
		}
		rs.countries[key] = &Set{Name: strings.ToLower(key), Family: IPv4 | IPv6, Dims: []Dim{DimAddr}, Countries: codes, DB: rs.Geo}
	}
	return rs.countries[key]
}

// Table is a table of rules.
type Table struct {
	Families Family
	Kind     string // as messages name it: `filter`, `inet firewalld`
	Chains   map[string]*Chain
	Order    []*Chain
	Sets     map[string]bool // names of sets and maps of nft
	Dormant  bool            // the kernel asks none of its chains
	Line     Place
}

// Hook is the place on a packet's way where a base chain is asked; the order is that of the way.
type Hook uint8

const (
	HookNone Hook = iota // no base chain
	HookIngress
	HookPrerouting
	HookInput
	HookForward
	HookOutput // and all that comes after the packets that the host got
)

// Chain is a list of rules. One with a hook is a base chain.
type Chain struct {
	Name     string
	Table    *Table
	Hook     Hook
	HookName string
	Priority int
	NAT      bool // translates addresses
	Policy   Action
	PolicyAt Place
	Devices  []string // of an ingress chain
	Rules    []Rule
	Visited  bool
}

// Rule is one rule: what it asks and what it does.
type Rule struct {
	At      Place
	Comment string
	Alts    []Cond // any of them; nil is every packet
	Act     Action
	Side    []string // what it does beside that, and the policy does not

	Options []Token       // of its target
	To      *Destination  // of nft's target that translates destinations
	Notrack bool          // takes packets out of connection tracking
	Tracked bool          // it takes them out, and the policy does not
	Marks   bool          // gives packets a mark
	Recent  *RecentOption // remembers addresses, or asks for those that are remembered
}

// Narrow makes the rule ask for any of conds, too: alternatives of each alternative and one of them.
func (r *Rule) Narrow(conds []Cond) {
	var out []Cond
	for _, a := range r.Alts {
		for _, c := range conds {
			out = append(out, a.And(c))
		}
	}
	r.Alts = out
}

// Proxies is the keys of a service's `syn` that does what the target of r does; ok is false when that is not SYNPROXY.
func (r *Rule) Proxies() (keys string, ok bool) {
	keys = "when: always"
	for _, t := range r.Options {
		limits, known := proxyOptions[t.Name]
		if !known || len(t.Args) != 1 {
			continue
		}
		n, err := strconv.Atoi(t.Args[0])
		if err != nil || n < limits[0] || n > limits[1] {
			return keys, false
		}
		keys += ", " + strings.TrimPrefix(t.Name, "--") + ": " + t.Args[0]
	}
	return keys, r.Act.Kind == ActUnknown && strings.EqualFold(r.Act.Target, "synproxy")
}

// proxyOptions are the options of SYNPROXY that a service has keys for, with the least and the greatest value of these.
var proxyOptions = map[string][2]int{"--mss": {536, 9000}, "--wscale": {0, 14}}

// WithoutEqual says that the target of r has no equal, and for SYNPROXY which key of a service to write in its place.
func (r *Rule) WithoutEqual() string {
	text := r.Act.Target + " has no equal: the policy asks the next rules"
	if keys, ok := r.Proxies(); ok {
		text += "; a service with `syn: {" + keys + "}` answers SYNs so, and needs no rule of raw"
	}
	return text
}

// Action is what a rule does with a packet.
type Action struct {
	Kind   ActionKind
	Target string // the chain of a jump or goto; what else has no equal
	Logs   bool
}

// ActionKind is the verdict of a rule, or its part in finding one.
type ActionKind uint8

const (
	ActNone    ActionKind = iota // no verdict: the next rule is asked
	ActAccept                    // the base chain is done
	ActDrop                      // the packet is gone
	ActReject                    // the same, and its sender is told
	ActReturn                    // the chain is done
	ActJump                      // another chain is asked, then the next rule
	ActGoto                      // another chain is asked instead of what is left of this one
	ActUnknown                   // a verdict without equal
)

// Place is where a rule stands, for messages.
type Place struct {
	File string
	Line int    // 0 when the format has none; then at tells
	At   string // `table inet filter, chain input, handle 5`
	Text string // the rule
}

func (p Place) String() string {
	if p.Line > 0 {
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	if p.At != "" {
		return fmt.Sprintf("%s: %s", p.File, p.At)
	}
	return p.File
}

// Set is a set of addresses, or of addresses with ports, that rules refer to.
type Set struct {
	Name    string // in its file
	Scope   string // of nft: family and table
	At      Place
	Family  Family
	Dims    []Dim
	Entries []Entry
	Ranges  []netipx.IPRange // the addresses of the entries, once all are read
	Lists   []*Set           // of a list of sets
	Dynamic bool             // rules or programs fill it
	Timeout time.Duration

	Countries []string // whose addresses it has, by the database DB
	DB        string

	Max     int
	Length  int    // of the prefixes to which addresses are cut before they are looked up (ipset's netmask); 0 is whole addresses
	Problem string // why it cannot be used; it follows the set's name

	Final string // its name in the policy
}

// Dim is one part of the entries of a set.
type Dim uint8

const (
	DimAddr Dim = iota
	DimPort
)

// Base lists the base chains of a hook for packets of one family, in the order in which they are asked.
func (rs *Ruleset) Base(f Family, h Hook) (list []*Chain) {
	for _, t := range rs.Tables {
		for _, c := range t.Order {
			if c.Hook == h && t.Families&f != 0 {
				list = append(list, c)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *Chain) int { return a.Priority - b.Priority })
	return list
}

// Chain makes a chain, or returns the one that has this name.
func (t *Table) Chain(name string) *Chain {
	if c := t.Chains[name]; c != nil {
		return c
	}
	c := &Chain{Name: name, Table: t}
	t.Chains[name] = c
	t.Order = append(t.Order, c)
	return c
}

// String names c for messages.
func (c *Chain) String() string { return fmt.Sprintf("table %s, chain %s", c.Table.Kind, c.Name) }

// Token is one option of a rule with its arguments.
type Token struct {
	Not    bool
	Module string // the extension or target that it belongs to; "" for iptables itself
	Name   string // with its dashes; of iptables itself the short one
	Args   []string
	Part   int    // tokens of the same -m have the same
	Unread string // why it is not understood, or ""
}

// RecentOption is what a rule asks of the lists of xt_recent, or does to them.
type RecentOption struct {
	Name  string
	Dest  bool
	Mask  string
	Set   bool // remembers the address of each packet that gets here, and matches it
	Ask   bool // matches when the address came often
	Not   bool
	Span  uint32 // in the last so many seconds; 0 is ever
	Hits  uint32 // so often, counted as iptables does
	Exact bool   // all options are understood
}
