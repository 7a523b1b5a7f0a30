// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// page is the reference page while it is written.
type page struct {
	strings.Builder
	schema schema
	rows   []row // of the matrix
	notes  []string
	manual manual
}

// row is an example of a key, with the answer of each target.
type row struct {
	example string
	answers []answer
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// table writes the head of a table.
func (p *page) table(heads ...string) {
	p.line("| %s |", strings.Join(heads, " | "))
	p.line("|%s", strings.Repeat("---|", len(heads)))
}

// section writes the table of a section's keys.
func (p *page) section(s section) error {
	keys, err := p.schema.keys(s.at)
	if err != nil {
		return err
	}
	p.line("\n## %s\n", s.title)
	if s.intro != "" {
		p.line("%s\n", s.intro)
	}
	all := make([]string, len(keys))
	for i, k := range keys {
		if all[i], err = p.probe(s, k); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	p.keys(keys, all)
	p.manual.section(s.title, s.intro, keys, all)
	return nil
}

// keys writes a table of keys. The parameter have contains the targets of each key. If all keys of the table have the same targets, a sentence before the
// table names them, otherwise the meanings do. If less than half of the keys have a default, the meanings say the defaults, too.
func (p *page) keys(keys []key, have []string) {
	differ := slices.ContainsFunc(have, func(targets string) bool { return targets != have[0] })
	if !differ && have[0] != everyTarget {
		p.line("Only target %s has these keys.\n", have[0])
	}
	defaults := 0
	for _, k := range keys {
		if k.def != "" {
			defaults++
		}
	}
	column := 2*defaults >= len(keys)
	row := func(name, typ, def, example, meaning string) {
		cells := []string{name, typ, def, example, meaning}
		if !column {
			cells = slices.Delete(cells, 2, 3)
		}
		p.line("| %s |", strings.Join(cells, " | "))
	}
	row("key", "type", "default", "example", "meaning")
	p.line("|---|---|%s---|---|", map[bool]string{true: "---|"}[column])
	for i, k := range keys {
		name, doc := "`"+k.name+"`", k.doc
		if k.required {
			name = "**" + name + "**"
		}
		if k.def != "" && !column {
			doc += " *Default*: " + k.def + "."
		}
		if differ && have[i] != everyTarget {
			doc += " Only " + have[i] + "."
		}
		row(name, cell(k.typ), cell(k.def), cell(code(k.examples[0])), cell(strings.TrimSpace(doc)))
	}
}

// everyTarget says that all targets have a key.
const everyTarget = "all"

// probe compiles the examples of a key for each target. It returns the names of the targets that support at least one.
func (p *page) probe(s section, k key) (have string, err error) {
	if len(k.examples) == 0 {
		return "", fmt.Errorf("the schema has no example")
	}
	names := make([]string, 0, len(targets))
	for i, example := range k.examples {
		r := row{example: fmt.Sprintf("`%s: %s`", k.name, flow(example))}
		for _, target := range targets {
			a, err := ask(s.probe(k, example), target)
			if err != nil {
				return "", err
			}
			r.answers = append(r.answers, a)
			if a.why == "" && !slices.Contains(names, string(target)) {
				names = append(names, string(target))
			}
		}
		if s.matrix && r.tells() && (i == 0 || len(p.rows) == 0 || !same(r, p.rows[len(p.rows)-1])) {
			p.rows = append(p.rows, r)
		}
	}
	if len(names) == len(targets) {
		return everyTarget, nil
	}
	return strings.Join(names, ", "), nil
}

// tells reports whether a row contains more than the fact that all targets support the key.
func (r row) tells() bool {
	return slices.ContainsFunc(r.answers, func(a answer) bool { return a.why != "" || len(a.stages) > 0 })
}

// same reports whether all targets have the same answers for two examples.
func same(a, b row) bool {
	return slices.EqualFunc(a.answers, b.answers, func(a, b answer) bool {
		return a.why == b.why && slices.Equal(a.stages, b.stages) && slices.Equal(a.notes, b.notes)
	})
}

// cell escapes the character that ends a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// values writes the value formats that several keys share.
func (p *page) values() error {
	p.line("\n## Values\n")
	p.table("value", "examples", "meaning")
	p.manual.line("\n# VALUES\nForms of values that several keys share.\n")
	for _, name := range []string{"addresses", "ports", "protocol", "dnsType", "rate", "duration", "per", "tcpFlags", "icmpMessage", "content", "domain", "device"} {
		def, err := p.schema.find("$defs/" + name)
		if err != nil {
			return err
		}
		var examples []string
		for _, e := range def.list("examples") {
			examples = append(examples, code(e))
		}
		p.line("| %s | %s | %s |", cell(def.text("title")), cell(strings.Join(examples, ", ")), cell(def.text("description")))
		p.manual.entry("**"+def.text("title")+"**", "", def.text("description"), "", def.list("examples"), "")
	}
	return nil
}

// note adds a note, and returns its number.
func (p *page) note(text string) string {
	i := slices.Index(p.notes, text)
	if i < 0 {
		i, p.notes = len(p.notes), append(p.notes, text)
	}
	return fmt.Sprintf("[%d](#note-%d)", i+1, i+1)
}

// matrix writes the stage of each example on each target, or the reason why there is none.
func (p *page) matrix() {
	p.line("\n## Features by target\n")
	p.line("The stage where a rule with this key alone runs: `xdp` in the driver, `ingress` at the device's netfilter hook, `raw` before connection")
	p.line("tracking, `filter` after routing. With target xdp the later stages are in nftables. Earlier rules can move a rule to a later stage:")
	p.line("`floodwall compile POLICY` prints the stage of each rule and the reason. Numbers are [notes](#notes).\n")
	p.table("key", "xdp", "nftables", "iptables")
	for _, group := range p.groups() {
		var examples []string
		for _, r := range group {
			if !slices.Contains(examples, r.example) {
				examples = append(examples, r.example)
			}
		}
		cells := []string{cell(strings.Join(examples, ", "))}
		for _, a := range group[0].answers {
			cells = append(cells, p.answer(a))
		}
		p.line("| %s |", strings.Join(cells, " | "))
	}
}

// groups returns the rows of the matrix by their answers, in the order of their first rows.
func (p *page) groups() (groups [][]row) {
	for _, r := range p.rows {
		i := slices.IndexFunc(groups, func(g []row) bool { return same(g[0], r) })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

func (p *page) answer(a answer) string {
	if a.why != "" {
		return "no " + p.note(a.why)
	}
	text := "yes"
	if len(a.stages) > 0 {
		var stages []string
		for _, s := range a.stages {
			stages = append(stages, string(s))
		}
		text = strings.Join(stages, ", ")
	}
	for _, n := range a.notes {
		text += " " + p.note(n)
	}
	return text
}

// checks writes which targets make each check.
func (p *page) checks() error {
	p.line("\n## Checks\n")
	p.line("No legitimate packet fails the checks of the profile `standard`, and hardly any those that `strict` adds. A check without a profile runs")
	p.line("only when the policy names it: `checks: {syn-data: on}`.\n")
	p.line("`part`: the target does not make the check, or not for all packets. `floodwall compile --target nftables POLICY` says what is missing, and")
	p.line("what the kernel itself does with such packets. A check of a profile is then left out and reported; one that the policy names is an error.\n")
	p.line("`truncated`, `tiny-fragment`, `ext-headers`, `ext-order` and `vlan-depth` hold whatever `checks` says, when a rule, a service or another")
	p.line("check depends on them: they drop packets that could hide a port or another key.\n")
	all := make([]string, packet.NumChecks)
	for c := range packet.NumChecks {
		all[c] = c.String() + ": on"
	}
	text := sets + "rules: [{name: x, port: tcp/80, then: drop}]\nchecks: {" + strings.Join(all, ", ") + "}\n"
	left := make([]map[packet.Check]bool, len(targets))
	for i, target := range targets {
		a, err := ask(text, target)
		if err != nil {
			return err
		}
		left[i] = map[packet.Check]bool{}
		for _, l := range a.left {
			left[i][l.Check] = true
		}
	}
	p.table("check", "profile", "xdp", "nftables", "iptables", "drops")
	for c := range packet.NumChecks {
		row := []string{"`" + c.String() + "`", profiles[c.Info().Profile]}
		for i := range targets {
			made := "yes"
			if left[i][c] {
				made = "part"
			}
			row = append(row, made)
		}
		p.line("| %s | %s |", strings.Join(row, " | "), cell(c.Info().Doc))
	}
	return nil
}

var profiles = map[packet.Profile]string{packet.Standard: "standard", packet.Strict: "strict", packet.Optional: ""}

// footnotes writes the notes.
func (p *page) footnotes() {
	p.line("\n## Notes\n")
	for i, n := range p.notes {
		p.line("%d. <a id=\"note-%d\"></a>%s.", i+1, i+1, strings.TrimSuffix(strings.ReplaceAll(n, "<", "&lt;"), "."))
	}
}
