package importer

import (
	"fmt"
	"slices"
	"strings"
)

// iptablesHooks are the built-in chains, and where on a packet's way they are asked.
var iptablesHooks = map[string]hook{
	"PREROUTING": hookPrerouting, "INPUT": hookInput, "FORWARD": hookForward,
	"OUTPUT": hookOutput, "POSTROUTING": hookOutput,
}

// iptablesPriority is the order of the tables at one hook (kernel include/uapi/linux/netfilter_ipv4.h).
var iptablesPriority = map[string]int{"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}

// iptablesFile is a file of iptables-save as far as it was read.
type iptablesFile struct {
	file    string
	family  family
	rs      *ruleset
	report  *report
	table   *table
	private map[string]*set // the sets by name
}

// readIptables reads the output of iptables-save or, by its family, ip6tables-save into rs.
func readIptables(rs *ruleset, rep *report, src Source, f family) error {
	p := &iptablesFile{file: src.Name, family: f, rs: rs, report: rep, private: map[string]*set{}}
	for _, s := range rs.sets {
		p.private[s.name] = s
	}
	number := 0
	for line := range strings.SplitSeq(string(src.Data), "\n") {
		number++
		if err := p.line(place{file: src.Name, line: number, text: strings.TrimSpace(line)}); err != nil {
			return err
		}
	}
	if p.table != nil {
		return &InputError{src.Name, number, fmt.Sprintf("table %s has no COMMIT: the file is cut off", p.table.kind),
			"save the rules again"}
	}
	if len(rs.tables) == 0 {
		return &InputError{src.Name, 0, "no table is in it", "iptables-save prints rules as it wants them"}
	}
	return nil
}

// line reads one line.
func (p *iptablesFile) line(at place) error {
	text := at.text
	switch {
	case text == "" || text[0] == '#':
		return nil
	case text[0] == '*':
		return p.begin(at, text[1:])
	case p.table == nil:
		return &InputError{at.file, at.line, fmt.Sprintf("%q stands before any table", shorten(text)),
			"this is not what iptables-save prints"}
	case text == "COMMIT":
		p.resolve()
		p.table = nil
		return nil
	case text[0] == ':':
		return p.declare(at, text[1:])
	}
	return p.command(at)
}

func (p *iptablesFile) begin(at place, name string) error {
	if p.table != nil {
		return &InputError{at.file, at.line, fmt.Sprintf("table %s begins, and table %s has no COMMIT", name, p.table.kind),
			"save the rules again"}
	}
	p.table = &table{families: p.family, kind: name, chains: map[string]*chain{}, line: at}
	p.rs.tables = append(p.rs.tables, p.table)
	return nil
}

// declare reads `:INPUT DROP [0:0]`.
func (p *iptablesFile) declare(at place, text string) error {
	words := strings.Fields(text)
	if len(words) < 2 {
		return &InputError{at.file, at.line, fmt.Sprintf("chain %q has no policy", shorten(text)),
			"this is not what iptables-save prints"}
	}
	c := p.table.chain(words[0])
	c.policyAt = at
	c.hook = iptablesHooks[c.name]
	p.base(c)
	switch words[1] {
	case "DROP":
		c.policy.kind = actDrop
	case "ACCEPT", "-":
	default:
		return &InputError{at.file, at.line, fmt.Sprintf("chain %s has the policy %s", c.name, shorten(words[1])),
			"a policy is ACCEPT or DROP"}
	}
	return nil
}

// command reads `-A CHAIN …` and the other commands that iptables-restore takes, with counters before them or without.
func (p *iptablesFile) command(at place) error {
	text := at.text
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
		c.rules = append(c.rules, p.rule(at, args[1:]))
	case "-I", "--insert":
		c := p.chain(at, args[0])
		n, rest := 0, args[1:]
		if len(rest) > 0 {
			if number, ok := number(rest[0], 1<<20); ok && number > 0 {
				n, rest = int(number)-1, rest[1:]
			}
		}
		c.rules = slices.Insert(c.rules, min(n, len(c.rules)), p.rule(at, rest))
	case "-N", "--new-chain":
		p.chain(at, args[0])
	case "-P", "--policy":
		return p.declare(at, strings.Join(args, " "))
	case "-F", "--flush", "-Z", "--zero", "-X", "--delete-chain": // of chains that iptables-restore has just emptied
		for _, c := range p.table.order {
			if (args[0] == "" || args[0] == c.name) && len(c.rules) > 0 && name != "-Z" && name != "--zero" {
				return p.unlike(at)
			}
		}
	default:
		return p.unlike(at)
	}
	return nil
}

// unlike is the error that a line is nothing that is understood. Where rules are removed or replaced, a part of them is no
// import.
func (p *iptablesFile) unlike(at place) error {
	remedy := "save the rules with iptables-save"
	if what, how := resembles(at.text); what != "" {
		remedy = fmt.Sprintf("it looks like %s: %s", what, how)
	}
	return &InputError{at.file, at.line, fmt.Sprintf("%q is no line of iptables-save", shorten(at.text)), remedy}
}

// chain is a chain of the table at hand. iptables-restore takes files without lines for the built-in ones.
func (p *iptablesFile) chain(at place, name string) *chain {
	c, known := p.table.chains[name], false
	if c != nil {
		return c
	}
	c = p.table.chain(name)
	c.policyAt = place{file: at.file, line: at.line}
	if c.hook, known = iptablesHooks[name]; known {
		p.base(c)
		p.report.note(place{file: at.file, line: at.line}, "no line :%s says what becomes of packets that no rule of table %s decides: they are accepted",
			name, p.table.kind)
	}
	return c
}

// base makes c a base chain that accepts.
func (p *iptablesFile) base(c *chain) {
	c.hookName = c.name
	c.priority = iptablesPriority[p.table.kind]
	c.nat = p.table.kind == "nat"
	c.policy = action{kind: actAccept}
}

// rule reads a rule behind its chain. What is not understood makes it one without equal.
func (p *iptablesFile) rule(at place, words []string) rule {
	r := ruleReader{file: p, rule: rule{at: at, alts: []cond{{}}}}
	r.read(words)
	return r.rule
}

// split takes a line apart at blanks, with quotes and backslashes as iptables-restore has them.
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
