// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go4.org/netipx"
)

// Ruleset is the content of the files in netfilter's terms: tables of chains of rules.
type Ruleset struct {
	File   string   // the first file, for messages about the whole ruleset
	Files  []string // all files, without directories
	Tables []*Table
	Sets   []*Set

	Geo       string // a database of countries, for rules that test countries
	countries map[string]*Set
}

// Country returns the set of the addresses of countries.
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
	Kind     string // name of the table in messages: `filter`, `inet firewalld`
	Chains   map[string]*Chain
	Order    []*Chain
	Sets     map[string]bool // names of sets and maps of nft
	Dormant  bool            // the kernel evaluates none of its chains
	Line     Place
}

// Hook is the hook of a base chain, in the order in which packets pass the hooks.
type Hook uint8

const (
	HookNone Hook = iota // not a base chain
	HookIngress
	HookPrerouting
	HookInput
	HookForward
	HookOutput // also all hooks for packets that leave
)

// Chain is a list of rules. A chain with a hook is a base chain.
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

// Rule is one rule: its conditions and its action.
type Rule struct {
	At      Place
	Comment string
	Alts    []Cond // any of them must hold; nil: every packet
	Act     Action
	Side    []string // other effects that a policy cannot have

	Options []Token       // options of the rule's target
	To      *Destination  // only for nft's targets that translate destinations
	Notrack bool          // it exempts packets from connection tracking
	Tracked bool          // the rule exempts packets from connection tracking, but the policy does not
	Marks   bool          // gives packets a mark
	Recent  *RecentOption // the rule records addresses, or tests recorded addresses
}

// Narrow adds the test that any of conds holds. It combines each alternative of the rule with each of conds.
func (r *Rule) Narrow(conds []Cond) {
	var out []Cond
	for _, a := range r.Alts {
		for _, c := range conds {
			out = append(out, a.And(c))
		}
	}
	r.Alts = out
}

// Proxies returns the keys of a service's `syn` that correspond to the target of r; ok is false when the target is not SYNPROXY.
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

// proxyOptions are the options of SYNPROXY for which a service has keys, with the smallest and the largest value of each.
var proxyOptions = map[string][2]int{"--mss": {536, 9000}, "--wscale": {0, 14}}

// WithoutEqual returns the remark that the target of r has no equivalent. For SYNPROXY, the remark names the key of a service to use instead.
func (r *Rule) WithoutEqual() string {
	text := r.Act.Target + " has no equal: the policy asks the next rules"
	if keys, ok := r.Proxies(); ok {
		text += "; a service with `syn: {" + keys + "}` answers SYNs so, and needs no rule of raw"
	}
	return text
}

// Action is the effect of a rule on a packet.
type Action struct {
	Kind   ActionKind
	Target string // the chain of a jump or goto, or the name of a target without equivalent
	Logs   bool
}

// ActionKind is the verdict of a rule, or its effect on the evaluation.
type ActionKind uint8

const (
	ActNone    ActionKind = iota // no verdict: the next rule is evaluated
	ActAccept                    // ends the base chain
	ActDrop                      // the packet is gone
	ActReject                    // the same, and the sender gets an error
	ActReturn                    // ends the chain
	ActJump                      // another chain is evaluated, then the next rule
	ActGoto                      // another chain is evaluated instead of the rest of this one
	ActUnknown                   // a verdict without equal
)

// Place is the place of a rule, for messages.
type Place struct {
	File string
	Line int    // 0 when the format has no lines; At then describes the place
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
	Name    string // name of the set in its file
	Scope   string // of nft: family and table
	At      Place
	Family  Family
	Dims    []Dim
	Entries []Entry
	Ranges  []netipx.IPRange // the addresses of the entries, after all were read
	Lists   []*Set           // only for a list of sets: the sets in the list
	Dynamic bool             // rules or programs fill it
	Timeout time.Duration

	Countries []string // countries whose addresses it has, according to the database DB
	DB        string

	Max     int
	Length  int    // the prefix length to which addresses are masked before the lookup (ipset's netmask); 0: whole addresses
	Problem string // why the set cannot be used; the text follows the set's name

	Final string // name of the set in the policy
}

// Dim is one part of the entries of a set.
type Dim uint8

const (
	DimAddr Dim = iota
	DimPort
)

// Base lists the base chains of a hook for packets of one family, in the order of their evaluation.
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

// Chain returns the chain of this name, and creates it if necessary.
func (t *Table) Chain(name string) *Chain {
	if c := t.Chains[name]; c != nil {
		return c
	}
	c := &Chain{Name: name, Table: t}
	t.Chains[name] = c
	t.Order = append(t.Order, c)
	return c
}

// String returns the name of c for messages.
func (c *Chain) String() string { return fmt.Sprintf("table %s, chain %s", c.Table.Kind, c.Name) }

// Token is one option of a rule with its arguments.
type Token struct {
	Not    bool
	Module string // the extension or target that it belongs to; "" for iptables itself
	Name   string // with its dashes; for iptables itself the short name
	Args   []string
	Part   int    // equal for tokens of the same -m
	Unread string // why the option is not supported, or ""
}

// RecentOption contains the test of a rule in the lists of xt_recent, or the recording of addresses there.
type RecentOption struct {
	Name  string
	Dest  bool
	Mask  string
	Set   bool // the rule records the address of each packet that reaches it, and matches the packet
	Ask   bool // the rule matches when the address came often
	Not   bool
	Span  uint32 // in the last Span seconds; 0: ever
	Hits  uint32 // at least this number of packets, as iptables counts them
	Exact bool   // all options are understood
}
