package importer

import (
	"bytes"
	"fmt"
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

	translates bool // some rule translates destinations
}

// readIptables reads the output of iptables-save or, by its family, ip6tables-save into rs.
func readIptables(rs *ruleset, rep *report, src Source, f family) error {
	p := &iptablesFile{file: src.Name, family: f, rs: rs, report: rep, private: map[string]*set{},
		translates: bytes.Contains(src.Data, []byte(" -j DNAT")) || bytes.Contains(src.Data, []byte(" -j REDIRECT"))}
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
		p.table = nil
		return nil
	case text[0] == ':':
		return p.declare(at, text[1:])
	}
	p.rule(at)
	return nil
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
	c.hookName = c.name
	c.priority = iptablesPriority[p.table.kind]
	c.nat = p.table.kind == "nat"
	c.policy = action{kind: actAccept}
	if words[1] == "DROP" {
		c.policy.kind = actDrop
	}
	return nil
}

// rule reads `-A CHAIN …`, with counters before it or without. What is not understood makes the rule one without equal.
func (p *iptablesFile) rule(at place) {
	text := at.text
	if text[0] == '[' {
		if _, rest, ok := strings.Cut(text, "] "); ok {
			text = rest
		}
	}
	words := split(text)
	if len(words) < 2 || words[0] != "-A" {
		p.report.lose(at, "not a rule as iptables-save prints it")
		return
	}
	c := p.table.chain(words[1])
	r := ruleReader{file: p, words: words[2:], rule: rule{at: at, alts: []cond{{}}}}
	r.read()
	c.rules = append(c.rules, r.rule)
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

// ruleReader is a rule as far as it was read.
type ruleReader struct {
	file   *iptablesFile
	words  []string
	rule   rule
	protos []uint32 // of -p, when it names them
	module string   // the -m that options belong to
}

// read takes one option after the other.
func (r *ruleReader) read() {
	for len(r.words) > 0 {
		not := false
		word := r.next()
		if word == "!" {
			not = true
			word = r.next()
		}
		o, known := options[word]
		if !known || len(r.words) < o.args {
			r.unknown(strings.TrimSpace("option " + word))
			r.skip(func(w string) bool { return strings.HasPrefix(w, "-") || w == "!" })
			continue
		}
		args := r.words[:o.args]
		r.words = r.words[o.args:]
		o.read(r, not, args)
	}
}

func (r *ruleReader) next() string {
	if len(r.words) == 0 {
		return ""
	}
	w := r.words[0]
	r.words = r.words[1:]
	return w
}

// skip passes over words until one that ends says so.
func (r *ruleReader) skip(ends func(string) bool) {
	for len(r.words) > 0 && !ends(r.words[0]) {
		r.words = r.words[1:]
	}
}

// each changes all alternatives.
func (r *ruleReader) each(change func(cond) cond) {
	for i := range r.rule.alts {
		r.rule.alts[i] = change(r.rule.alts[i])
	}
}

func (r *ruleReader) unknown(what string) {
	r.each(func(c cond) cond { return c.withUnknown(what) })
}
