package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// nftFamilies are the families of tables that filter IP packets.
var nftFamilies = map[string]family{"ip": ipv4, "ip6": ipv6, "inet": ipv4 | ipv6, "netdev": ipv4 | ipv6}

var nftHooks = map[string]hook{
	"ingress": hookIngress, "prerouting": hookPrerouting, "input": hookInput, "forward": hookForward,
	"output": hookOutput, "postrouting": hookOutput, "egress": hookOutput,
}

// nftHead is what the objects of `nft -j list ruleset` have in common, and what tables, chains, sets and rules add.
type nftHead struct {
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

// nftFile is a ruleset of nft as far as it was read.
type nftFile struct {
	name   string
	rs     *ruleset
	report *report
	lines  nftLines
	tables map[string]*table
	sets   map[string]*nftSet // by family, table and name
	counts map[*chain]int     // how many rules there are
	rules  map[*chain]int     // how many were read
}

// nftSet is a set or a map, whose elements mean what the rule that uses it looks up.
type nftSet struct {
	*set
	elem []any
}

// readNft reads the output of `nft -j list ruleset` into rs. lines, when the input was text, tells where rules stand.
func readNft(rs *ruleset, rep *report, name string, data []byte, lines nftLines) error {
	var doc struct {
		Objects []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return jsonError(name, data, err)
	}
	if doc.Objects == nil {
		return &InputError{name, 0, "no key nftables is in it", "`nft -j list ruleset` prints rules as it wants them"}
	}
	p := &nftFile{name: name, rs: rs, report: rep, lines: lines, tables: map[string]*table{}, sets: map[string]*nftSet{},
		counts: map[*chain]int{}, rules: map[*chain]int{}}
	for _, step := range []func(kind string, o nftHead) error{p.declare, p.fills, p.rule} {
		for _, object := range doc.Objects {
			for kind, raw := range object {
				var o nftHead
				if kind == "metainfo" {
					continue
				}
				if err := json.Unmarshal(raw, &o); err != nil {
					return &InputError{name, 0, fmt.Sprintf("a %s is not as nft prints it: %v", kind, err), ""}
				}
				if err := step(kind, o); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// jsonError says in which line JSON goes wrong.
func jsonError(name string, data []byte, err error) error {
	line := 0
	if s, ok := err.(*json.SyntaxError); ok {
		line = 1 + bytes.Count(data[:min(int(s.Offset), len(data))], []byte("\n"))
	}
	return &InputError{name, line, fmt.Sprintf("JSON: %v", err), "`nft -j list ruleset` prints rules as it wants them"}
}

func (p *nftFile) table(o nftHead, name string) *table {
	key := o.Family + " " + name
	t := p.tables[key]
	if t == nil {
		t = &table{families: nftFamilies[o.Family], kind: key, chains: map[string]*chain{}, line: place{file: p.name, at: "table " + key}}
		p.tables[key] = t
		p.rs.tables = append(p.rs.tables, t)
	}
	return t
}

// declare reads tables, chains, sets and maps.
func (p *nftFile) declare(kind string, o nftHead) error {
	switch kind {
	case "table":
		if t := p.table(o, o.Name); t.families == 0 {
			p.report.lose(t.line, "filters what is not IP, and the policy does not")
		}
	case "chain":
		p.chain(o)
	case "set", "map":
		p.set(o)
	case "flowtable":
		p.report.lose(place{file: p.name, at: fmt.Sprintf("flowtable %s", o.Name)}, "forwards packets past the rules, and the policy does not")
	}
	return nil
}

func (p *nftFile) chain(o nftHead) {
	c := p.table(o, o.Table).chain(o.Name)
	c.policyAt = place{file: p.name, at: c.String()}
	if o.Hook == "" {
		return
	}
	c.hook = nftHooks[o.Hook]
	c.hookName = o.Hook
	c.nat = string(o.Type) == `"nat"`
	json.Unmarshal(o.Prio, &c.priority) // a name instead of a number is not printed by list
	c.devices = words(o.Dev)
	c.policy.kind = actAccept
	if o.Policy == "drop" {
		c.policy.kind = actDrop
	}
}

// words reads a word or a list of words.
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

// set reads a set or a map.
func (p *nftFile) set(o nftHead) {
	key := o.Family + " " + o.Table + " " + o.Name
	s := &set{
		name: o.Name, scope: o.Family + " " + o.Table, at: place{file: p.name, at: fmt.Sprintf("table %s %s, set %s", o.Family, o.Table, o.Name)},
		timeout: time.Duration(o.Timeout) * time.Second, max: o.Size,
	}
	for _, f := range words(o.Flags) {
		s.dynamic = s.dynamic || f == "timeout" || f == "dynamic"
	}
	types := words(o.Type)
	if len(types) == 1 && o.Map == nil {
		s.family = map[string]family{"ipv4_addr": ipv4, "ipv6_addr": ipv6}[types[0]]
	}
	if s.family != 0 {
		s.dims = []dim{dimAddr}
		p.addresses(s, o.Elem)
		p.rs.sets = append(p.rs.sets, s)
	}
	p.sets[key] = &nftSet{s, o.Elem}
}

// addresses reads the elements of a set of addresses.
func (p *nftFile) addresses(s *set, elems []any) {
	for _, e := range elems {
		val, comment := element(e)
		r, ok := nftAddr(val)
		if !ok || mapped(r) {
			p.report.lose(s.at, "element %s has no equal; the set is imported without it", compact(e))
			continue
		}
		s.entries = append(s.entries, entry{addr: r, comment: comment})
	}
	s.finish()
}

// fills finds the sets that rules fill.
func (p *nftFile) fills(kind string, o nftHead) error {
	if kind != "rule" {
		return nil
	}
	p.counts[p.table(o, o.Table).chain(o.Chain)]++
	for _, raw := range o.Expr {
		var statement struct {
			Set struct{ Set string } `json:"set"`
		}
		if json.Unmarshal(raw, &statement) != nil || statement.Set.Set == "" {
			continue
		}
		if s := p.named(o, statement.Set.Set); s != nil {
			s.dynamic = true
		}
	}
	return nil
}

// named is the set behind @name.
func (p *nftFile) named(o nftHead, at string) *nftSet {
	if at == "" || at[0] != '@' {
		return nil
	}
	return p.sets[o.Family+" "+o.Table+" "+at[1:]]
}

// rule reads a rule; one with a verdict map becomes several.
func (p *nftFile) rule(kind string, o nftHead) error {
	if kind != "rule" {
		return nil
	}
	t := p.table(o, o.Table)
	if t.families == 0 {
		return nil
	}
	c := t.chain(o.Chain)
	at := place{file: p.name, at: fmt.Sprintf("%s, handle %d", c, o.Handle), text: statements(o.Expr)}
	if l, ok := p.lines.of(t.kind, o.Chain, p.rules[c], p.counts[c]); ok {
		at = place{file: p.name, line: l.number, text: l.text}
	}
	p.rules[c]++
	r := nftReader{file: p, head: o, rule: rule{at: at, comment: o.Comment, alts: []cond{{}}}}
	c.rules = append(c.rules, r.read()...)
	return nil
}

func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
