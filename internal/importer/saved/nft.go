// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// tableFamilies are the families of tables that filter IP packets.
var tableFamilies = map[string]Family{"ip": IPv4, "ip6": IPv6, "inet": IPv4 | IPv6, "netdev": IPv4 | IPv6}

var hooks = map[string]Hook{
	"ingress": HookIngress, "prerouting": HookPrerouting, "input": HookInput, "forward": HookForward,
	"output": HookOutput, "postrouting": HookOutput, "egress": HookOutput,
}

// listObject contains the members that objects of `nft -j list ruleset` have in common, and the members of tables, chains, sets and rules.
type listObject struct {
	Family  string            `json:"family"`
	Table   string            `json:"table"`
	Name    string            `json:"name"`
	Handle  int               `json:"handle"`
	Chain   string            `json:"chain"`
	Comment string            `json:"comment"`
	Type    json.RawMessage   `json:"type"`
	Hook    string            `json:"hook"`
	Prio    json.RawMessage   `json:"prio"`
	Policy  string            `json:"policy"`
	Dev     json.RawMessage   `json:"dev"`
	Flags   json.RawMessage   `json:"flags"`
	Timeout int               `json:"timeout"`
	Size    int               `json:"size"`
	Map     json.RawMessage   `json:"map"`
	Elem    []any             `json:"elem"`
	Expr    []json.RawMessage `json:"expr"`
}

// rulesetFile is the state of parsing a ruleset of nft.
type rulesetFile struct {
	name   string
	rs     *Ruleset
	report *Report
	lines  ruleLines
	listed *listing // the same ruleset as text; nil if there is none
	tables map[string]*Table
	sets   map[string]*namedSet // by family, table and name
	counts map[*Chain]int       // the number of rules of each chain
	rules  map[*Chain]int       // the number of rules that were read
}

// namedSet is a set or a map. The meaning of its elements depends on the packet fields that a rule looks up in it.
type namedSet struct {
	*Set
	elem []any
}

// readJSON parses the output of `nft -j list ruleset` into rs. If the input was text, lines has the places of the rules.
func readJSON(rs *Ruleset, rep *Report, name string, data []byte, lines ruleLines, listed *listing) error {
	var doc struct {
		Objects []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return jsonError(name, data, err)
	}
	if doc.Objects == nil {
		return &InputError{File: name, Line: 0, Msg: "no key nftables is in it", Remedy: "`nft -j list ruleset` prints rules as it wants them"}
	}
	p := &rulesetFile{name: name, rs: rs, report: rep, lines: lines, listed: listed, tables: map[string]*Table{}, sets: map[string]*namedSet{},
		counts: map[*Chain]int{}, rules: map[*Chain]int{}}
	for _, step := range []func(kind string, o listObject) error{p.declare, p.fills, p.rule} {
		for _, object := range doc.Objects {
			for kind, raw := range object {
				var o listObject
				if !slices.Contains(readKinds, kind) {
					continue
				}
				if err := json.Unmarshal(raw, &o); err != nil {
					return &InputError{File: name, Line: 0, Msg: fmt.Sprintf("a %s is not as nft prints it: %v", kind, err), Remedy: ""}
				}
				if err := step(kind, o); err != nil {
					return err
				}
			}
		}
	}
	if err := p.fewer(); err != nil {
		return err
	}
	return asleep(rs, name)
}

// fewer returns an error if the JSON has fewer rules of a chain than nft's text of the same rules.
func (p *rulesetFile) fewer() error {
	for _, t := range p.tables {
		for _, c := range t.Order {
			if p.listed != nil && len(p.listed.rules[t.Kind+" "+c.Name]) > p.counts[c] {
				return &InputError{File: p.name, Line: 0, Msg: fmt.Sprintf("%s: nft lists %d rules as text, and %d as JSON", c, len(p.listed.rules[t.Kind+" "+c.Name]), p.counts[c]),
					Remedy: "load the rules on a host with another version of nft, and import what `nft -j list ruleset` prints there"}
			}
		}
	}
	return nil
}

// asleep returns an error if all tables are dormant.
func asleep(rs *Ruleset, name string) error {
	if len(rs.Tables) == 0 || slices.ContainsFunc(rs.Tables, func(t *Table) bool { return !t.Dormant }) {
		return nil
	}
	return &InputError{File: name, Line: 0, Msg: fmt.Sprintf("table %s is dormant: the kernel asks none of its chains, and no other table is in the file", rs.Tables[0].Kind),
		Remedy: "take `flags dormant` out of the file to import its rules"}
}

// readKinds are the kinds of objects that affect packets. Other objects, such as a ct timeout, take effect by the rules that name them.
var readKinds = []string{"table", "chain", "set", "map", "flowtable", "rule"}

// jsonError returns an error with the line of a JSON error.
func jsonError(name string, data []byte, err error) error {
	line := 0
	if s, ok := err.(*json.SyntaxError); ok {
		line = 1 + bytes.Count(data[:min(int(s.Offset), len(data))], []byte("\n"))
	}
	return &InputError{File: name, Line: line, Msg: fmt.Sprintf("JSON: %v", err), Remedy: "`nft -j list ruleset` prints rules as it wants them"}
}

func (p *rulesetFile) table(o listObject, name string) *Table {
	key := o.Family + " " + name
	t := p.tables[key]
	if t == nil {
		t = &Table{Families: tableFamilies[o.Family], Kind: key, Chains: map[string]*Chain{}, Sets: map[string]bool{}, Line: Place{File: p.name, At: "table " + key}}
		p.tables[key] = t
		p.rs.Tables = append(p.rs.Tables, t)
	}
	return t
}

// declare parses tables, chains, sets and maps.
func (p *rulesetFile) declare(kind string, o listObject) error {
	switch kind {
	case "table":
		t := p.table(o, o.Name)
		if t.Families == 0 {
			p.report.Lose(t.Line, "filters what is not IP, and the policy does not")
		}
		return p.flags(t, o)
	case "chain":
		return p.chain(o)
	case "set", "map":
		p.set(o)
	case "flowtable":
		p.report.Lose(Place{File: p.name, At: fmt.Sprintf("flowtable %s", o.Name)}, "%s", PastRules)
	}
	return nil
}

// flags parses the flags of a table. nft 1.0.6 prints them wrongly in JSON, and correctly as text.
func (p *rulesetFile) flags(t *Table, o listObject) error {
	flags := words(o.Flags)
	if p.listed != nil {
		flags = p.listed.flags[t.Kind]
	}
	for _, f := range flags {
		switch f {
		case "dormant":
			t.Dormant = true
			p.report.Note(t.Line, "is dormant: the kernel asks none of its chains, nor does the policy")
		case "owner", "persist":
		default:
			return &InputError{File: p.name, Line: 0, Msg: fmt.Sprintf("table %s has the flag %q, whose meaning is not known", t.Kind, Shorten(f)),
				Remedy: "nft 1.0.6 prints the flags of tables wrongly as JSON: give the output of `nft list ruleset`"}
		}
	}
	return nil
}

func (p *rulesetFile) chain(o listObject) error {
	c := p.table(o, o.Table).Chain(o.Name)
	c.PolicyAt = Place{File: p.name, At: c.String()}
	if o.Hook == "" || c.Table.Dormant {
		return nil
	}
	c.Hook = hooks[o.Hook]
	c.HookName = o.Hook
	c.NAT = string(o.Type) == `"nat"`
	json.Unmarshal(o.Prio, &c.Priority) // `list` prints numbers, not names
	if c.Devices = words(o.Dev); c.Devices == nil && p.listed != nil {
		c.Devices = p.listed.devices[c.Table.Kind+" "+c.Name]
	}
	c.Policy.Kind = ActAccept
	if o.Policy == "drop" {
		c.Policy.Kind = ActDrop
	}
	if c.Hook == HookIngress && c.Devices == nil {
		return &InputError{File: p.name, Line: 0, Msg: fmt.Sprintf("%s, hook ingress: no device is in the file", c),
			Remedy: "nft 1.0.6 leaves the devices of chains out of JSON: give the output of `nft list ruleset`"}
	}
	return nil
}

// words parses a word or a list of words.
func words(raw json.RawMessage) (list []string) {
	var one string
	if json.Unmarshal(raw, &one) == nil && one != "" {
		return []string{one}
	}
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list
}

// set parses a set or a map.
func (p *rulesetFile) set(o listObject) {
	key := o.Family + " " + o.Table + " " + o.Name
	s := &Set{
		Name: o.Name, Scope: o.Family + " " + o.Table, At: Place{File: p.name, At: fmt.Sprintf("table %s %s, set %s", o.Family, o.Table, o.Name)},
		Timeout: time.Duration(o.Timeout) * time.Second, Max: o.Size,
	}
	for _, f := range words(o.Flags) {
		s.Dynamic = s.Dynamic || f == "timeout" || f == "dynamic"
	}
	p.table(o, o.Table).Sets[o.Name] = true
	if o.Map == nil {
		s.Family = addressType(o.Type)
	}
	if s.Family != 0 {
		s.Dims = []Dim{DimAddr}
		p.addresses(s, o.Elem)
		p.rs.Sets = append(p.rs.Sets, s)
	}
	p.sets[key] = &namedSet{s, o.Elem}
}

// addressType returns the family of the addresses in a set, by their type or by an expression of that type (typeof), or 0.
func addressType(raw json.RawMessage) Family {
	if types := words(raw); len(types) == 1 {
		return map[string]Family{"ipv4_addr": IPv4, "ipv6_addr": IPv6}[types[0]]
	}
	var of struct {
		Typeof any `json:"typeof"`
	}
	if json.Unmarshal(raw, &of) != nil || of.Typeof == nil {
		return 0
	}
	s := selectorOf(of.Typeof)
	switch v := s.given.Field[packet.Family]; {
	case s.side == nil || s.kinds || v == nil:
		return 0
	case v.Has(packet.FamilyIPv4):
		return IPv4
	}
	return IPv6
}

// addresses parses the elements of a set of addresses.
func (p *rulesetFile) addresses(s *Set, elems []any) {
	for _, e := range elems {
		val, comment := element(e)
		r, ok := addrRange(val)
		if !ok || Mapped(r) {
			p.report.Lose(s.At, "element %s has no equal; the set is imported without it", compact(e))
			continue
		}
		s.Entries = append(s.Entries, Entry{Addr: r, Comment: comment})
	}
	s.Finish()
}

// fills marks the sets that rules fill.
func (p *rulesetFile) fills(kind string, o listObject) error {
	if kind != "rule" {
		return nil
	}
	t := p.table(o, o.Table)
	if t.Chains[o.Chain] == nil {
		return &InputError{File: p.name, Line: 0, Msg: fmt.Sprintf("a rule is in chain %s of table %s, and no such chain is in the file", o.Chain, t.Kind),
			Remedy: "give all of what `nft -j list ruleset` prints"}
	}
	p.counts[t.Chain(o.Chain)]++
	for _, raw := range o.Expr {
		var statement struct {
			Set struct{ Set string } `json:"set"`
		}
		if json.Unmarshal(raw, &statement) != nil || statement.Set.Set == "" {
			continue
		}
		if s := p.named(o, statement.Set.Set); s != nil {
			s.Dynamic = true
		}
	}
	return nil
}

// named returns the set that @name refers to.
func (p *rulesetFile) named(o listObject, at string) *namedSet {
	if at == "" || at[0] != '@' {
		return nil
	}
	return p.sets[o.Family+" "+o.Table+" "+at[1:]]
}

// rule parses a rule. A rule with a verdict map becomes several rules.
func (p *rulesetFile) rule(kind string, o listObject) error {
	if kind != "rule" {
		return nil
	}
	t := p.table(o, o.Table)
	if t.Families == 0 {
		return nil
	}
	c := t.Chain(o.Chain)
	at := Place{File: p.name, At: fmt.Sprintf("%s, handle %d", c, o.Handle), Text: statements(o.Expr)}
	if l, ok := p.lines.of(t.Kind, o.Chain, p.rules[c], p.counts[c]); ok {
		at = Place{File: p.name, Line: l.number, Text: l.text}
	}
	p.rules[c]++
	r := nftRuleReader{file: p, head: o, rule: Rule{At: at, Comment: o.Comment, Alts: []Cond{{}}}}
	c.Rules = append(c.Rules, r.read()...)
	return nil
}

func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
