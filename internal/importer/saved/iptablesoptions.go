// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"slices"
	"strings"

	"github.com/floodwall/floodwall/policy"
)

// tokenizer splits a rule into options as iptables-restore does (getopt_long(3)). Options may have any order. Long options may be abbreviated. An
// argument may follow after =, or directly after a short option.
type tokenizer struct {
	words  []string
	loaded []string // extensions, in the order in which the rule names them
	target string
	recent string // the extension that was named last
	part   int
	tokens []Token
}

// tokenize splits the words of a rule after its chain into tokens.
func tokenize(words []string) []Token {
	t := &tokenizer{words: words}
	t.scan()
	for len(t.words) > 0 {
		t.token()
	}
	return t.tokens
}

// scan finds the extensions that a rule uses. It runs first because options may precede the word that names their extension.
func (t *tokenizer) scan() {
	for i := range t.words {
		name, value, attached := t.option(t.words[i])
		if !attached && i+1 < len(t.words) {
			value = t.words[i+1]
		}
		switch coreOptions[name] {
		case "-p":
			if n, ok := ProtoNumber(value); ok {
				t.loaded = append(t.loaded, protoExtension(n))
			}
		case "-m":
			t.loaded = append(t.loaded, value)
		case "-j", "-g":
			t.target = value
		}
	}
}

// protoExtension returns the extension that -p loads without -m.
func protoExtension(n uint32) string {
	switch n {
	case ProtoICMP:
		return "icmp"
	case ProtoICMPv6:
		return "icmp6"
	}
	return policy.ProtocolName(uint8(n))
}

// option splits a word into an option and its argument: `--dport=22`, `-ptcp`.
func (t *tokenizer) option(word string) (name, value string, attached bool) {
	if long := strings.HasPrefix(word, "--"); long {
		name, value, attached = strings.Cut(word, "=")
		return name, value, attached
	}
	if len(word) > 2 && word[0] == '-' && coreArity[word[:2]] == 1 {
		return word[:2], word[2:], true
	}
	return word, "", false
}

// token parses one option.
func (t *tokenizer) token() {
	k := Token{}
	word := t.next()
	for word == "!" {
		k.Not = !k.Not
		word = t.next()
	}
	name, value, attached := t.option(word)
	if attached {
		t.words = append([]string{value}, t.words...)
	}
	count, known := 0, false
	if k.Name, k.Module, count, known = t.find(name); !known {
		k.Name, k.Unread = name, "option "+word
		if !strings.HasPrefix(word, "-") {
			k.Unread = "the word " + word
		}
		t.tokens = append(t.tokens, k)
		t.skip()
		return
	}
	if count > 0 && len(t.words) > 0 && t.words[0] == "!" { // this is the form of iptables before 1.4.3
		k.Not = !k.Not
		t.next()
	}
	if len(t.words) < count {
		k.Unread = "option " + word + " without its argument"
		count = len(t.words)
	}
	k.Args = t.words[:count]
	t.words = t.words[count:]
	if k.Name == "-m" && k.Unread == "" {
		t.part++
		t.recent = k.Args[0]
	}
	k.Part = t.part
	t.tokens = append(t.tokens, k)
}

func (t *tokenizer) next() string {
	if len(t.words) == 0 {
		return ""
	}
	w := t.words[0]
	t.words = t.words[1:]
	return w
}

// skip skips the arguments of an unknown option.
func (t *tokenizer) skip() {
	for len(t.words) > 0 && !strings.HasPrefix(t.words[0], "-") && t.words[0] != "!" {
		t.next()
	}
}

// find finds an option by its name or by an unambiguous prefix of the name. Options of the extension that was named last hide options of other
// extensions (libxtables, xtables_merge_options).
func (t *tokenizer) find(name string) (full, module string, count int, known bool) {
	if core, ok := coreOptions[name]; ok {
		return core, "", coreArity[core], true
	}
	order := []string{t.recent}
	for _, m := range slices.Backward(t.loaded) {
		order = append(order, m)
	}
	for _, m := range order {
		if n, ok := matchOptions[m][name]; ok {
			return name, m, n, true
		}
	}
	if n, ok := targetOptions[t.target][name]; ok {
		return name, t.target, n, true
	}
	if !strings.HasPrefix(name, "--") || len(name) < 4 {
		return name, "", 0, false
	}
	return t.abbreviated(name, order)
}

// abbreviated finds the only option that begins with name.
func (t *tokenizer) abbreviated(name string, order []string) (full, module string, count int, known bool) {
	found := map[string]bool{}
	for long, core := range coreOptions {
		if strings.HasPrefix(long, name) {
			full, module, count = core, "", coreArity[core]
			found[core] = true
		}
	}
	for _, m := range append(order, t.target) {
		options := matchOptions[m]
		if m == t.target {
			options = targetOptions[m]
		}
		for long, n := range options {
			if strings.HasPrefix(long, name) && !found[long] {
				full, module, count = long, m, n
				found[long] = true
			}
		}
	}
	return full, module, count, len(found) == 1
}
