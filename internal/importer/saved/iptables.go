// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"
	"slices"
	"strings"
)

// builtin maps the built-in chains to the hooks at which packets pass them.
var builtin = map[string]Hook{
	"PREROUTING": HookPrerouting, "INPUT": HookInput, "FORWARD": HookForward,
	"OUTPUT": HookOutput, "POSTROUTING": HookOutput,
}

// tablePriority is the order of the tables at one hook (kernel include/uapi/linux/netfilter_ipv4.h).
var tablePriority = map[string]int{"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}

// saveFile is the state of parsing a file of iptables-save.
type saveFile struct {
	file    string
	family  Family
	rs      *Ruleset
	report  *Report
	table   *Table
	private map[string]*Set // the sets by name
}

// ReadIptables parses the output of iptables-save or, depending on the family, ip6tables-save into rs.
func ReadIptables(rs *Ruleset, rep *Report, src Source, f Family) error {
	p := &saveFile{file: src.Name, family: f, rs: rs, report: rep, private: map[string]*Set{}}
	for _, s := range rs.Sets {
		p.private[s.Name] = s
	}
	number := 0
	for line := range strings.SplitSeq(string(src.Data), "\n") {
		number++
		if err := p.line(Place{File: src.Name, Line: number, Text: strings.TrimSpace(line)}); err != nil {
			return err
		}
	}
	if p.table != nil {
		return &InputError{File: src.Name, Line: number, Msg: fmt.Sprintf("table %s has no COMMIT: the file is cut off", p.table.Kind),
			Remedy: "save the rules again"}
	}
	if len(rs.Tables) == 0 {
		return &InputError{File: src.Name, Line: 0, Msg: "no table is in it", Remedy: "iptables-save prints rules as it wants them"}
	}
	return nil
}

// line parses one line.
func (p *saveFile) line(at Place) error {
	text := at.Text
	switch {
	case text == "" || text[0] == '#':
		return nil
	case text[0] == '*':
		return p.begin(at, text[1:])
	case p.table == nil:
		return &InputError{File: at.File, Line: at.Line, Msg: fmt.Sprintf("%q stands before any table", Shorten(text)),
			Remedy: "this is not what iptables-save prints"}
	case text == "COMMIT":
		p.resolve()
		p.table = nil
		return nil
	case text[0] == ':':
		return p.declare(at, text[1:])
	}
	return p.command(at)
}

func (p *saveFile) begin(at Place, name string) error {
	if p.table != nil {
		return &InputError{File: at.File, Line: at.Line, Msg: fmt.Sprintf("table %s begins, and table %s has no COMMIT", name, p.table.Kind),
			Remedy: "save the rules again"}
	}
	p.table = &Table{Families: p.family, Kind: name, Chains: map[string]*Chain{}, Line: at}
	p.rs.Tables = append(p.rs.Tables, p.table)
	return nil
}

// declare parses `:INPUT DROP [0:0]`.
func (p *saveFile) declare(at Place, text string) error {
	words := strings.Fields(text)
	if len(words) < 2 {
		return &InputError{File: at.File, Line: at.Line, Msg: fmt.Sprintf("chain %q has no policy", Shorten(text)),
			Remedy: "this is not what iptables-save prints"}
	}
	c := p.table.Chain(words[0])
	c.PolicyAt = at
	c.Hook = builtin[c.Name]
	p.base(c)
	switch words[1] {
	case "DROP":
		c.Policy.Kind = ActDrop
	case "ACCEPT", "-":
	default:
		return &InputError{File: at.File, Line: at.Line, Msg: fmt.Sprintf("chain %s has the policy %s", c.Name, Shorten(words[1])),
			Remedy: "a policy is ACCEPT or DROP"}
	}
	return nil
}

// command parses `-A CHAIN …` and the other commands of iptables-restore, with or without counters before them.
func (p *saveFile) command(at Place) error {
	text := at.Text
	if text[0] == '[' {
		if _, rest, ok := strings.Cut(text, "]"); ok {
			text = strings.TrimSpace(rest)
		}
	}
	words := split(text)
	name, args := "", []string(nil)
	if len(words) > 0 {
		name, args = words[0], words[1:]
	}
	if len(args) == 0 {
		args = []string{""}
	}
	switch name {
	case "-A", "--append":
		c := p.chain(at, args[0])
		c.Rules = append(c.Rules, p.rule(at, args[1:]))
	case "-I", "--insert":
		c := p.chain(at, args[0])
		n, rest := 0, args[1:]
		if len(rest) > 0 {
			if number, ok := Number(rest[0], 1<<20); ok && number > 0 {
				n, rest = int(number)-1, rest[1:]
			}
		}
		c.Rules = slices.Insert(c.Rules, min(n, len(c.Rules)), p.rule(at, rest))
	case "-N", "--new-chain":
		p.chain(at, args[0])
	case "-P", "--policy":
		return p.declare(at, strings.Join(args, " "))
	case "-F", "--flush", "-Z", "--zero", "-X", "--delete-chain": // these commands affect only chains that iptables-restore has just emptied
		for _, c := range p.table.Order {
			if (args[0] == "" || args[0] == c.Name) && len(c.Rules) > 0 && name != "-Z" && name != "--zero" {
				return p.unlike(at)
			}
		}
	default:
		return p.unlike(at)
	}
	return nil
}

// unlike returns the error for a line that is not supported. The line is an error because importing only a part of a file would be wrong if the file
// removes or replaces rules.
func (p *saveFile) unlike(at Place) error {
	remedy := "save the rules with iptables-save"
	if what, how := Resembles(at.Text); what != "" {
		remedy = fmt.Sprintf("it looks like %s: %s", what, how)
	}
	return &InputError{File: at.File, Line: at.Line, Msg: fmt.Sprintf("%q is no line of iptables-save", Shorten(at.Text)), Remedy: remedy}
}

// chain returns a chain of the current table. iptables-restore accepts files without lines for the built-in chains.
func (p *saveFile) chain(at Place, name string) *Chain {
	c, known := p.table.Chains[name], false
	if c != nil {
		return c
	}
	c = p.table.Chain(name)
	c.PolicyAt = Place{File: at.File, Line: at.Line}
	if c.Hook, known = builtin[name]; known {
		p.base(c)
		p.report.Note(Place{File: at.File, Line: at.Line}, "no line :%s says what becomes of packets that no rule of table %s decides: they are accepted",
			name, p.table.Kind)
	}
	return c
}

// base makes c a base chain whose policy is to accept.
func (p *saveFile) base(c *Chain) {
	c.HookName = c.Name
	c.Priority = tablePriority[p.table.Kind]
	c.NAT = p.table.Kind == "nat"
	c.Policy = Action{Kind: ActAccept}
}

// rule parses the part of a rule after its chain. A part that is not understood makes the rule one without equal.
func (p *saveFile) rule(at Place, words []string) Rule {
	r := iptablesRuleReader{file: p, rule: Rule{At: at, Alts: []Cond{{}}}}
	r.read(words)
	return r.rule
}

// split splits a line at spaces, with the quotes and backslashes of iptables-restore.
func split(text string) []string {
	if !strings.ContainsAny(text, `"'\`) {
		return strings.Fields(text)
	}
	var words []string
	var word strings.Builder
	inWord, quote := false, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			word.WriteByte(text[i])
			inWord = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inWord = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words
}
