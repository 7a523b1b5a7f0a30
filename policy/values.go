// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// text returns the word in v. If v is not a word, text reports a mistake and returns false.
func (p place) text(key string, v *node) (string, bool) {
	switch {
	case v.Kind == yamltree.Broken:
	case v.Kind == yamltree.Nothing:
		p.errorf(v.Pos, "%s has no value", key).Hint = "give it one, or remove the key"
	case v.Kind != yamltree.Word:
		p.errorf(v.Pos, "%s must be a single value, got %s", key, v).Hint = "write " + key + ": VALUE"
	default:
		return v.Text, true
	}
	return "", false
}

// scalarOf parses the single value v of key.
func scalarOf[T any](p place, key string, v *node, parse func(string) (T, *flaw)) (value T) {
	text, ok := p.text(key, v)
	if !ok {
		return value
	}
	value, f := parse(text)
	if f != nil {
		p.flawed(v.Pos, key, f)
	}
	return value
}

// values parses the alternatives of key: a word, or a list of words.
func values[T any](p place, key string, v *node, parse func(string) ([]T, *flaw)) []T {
	var all []T
	p.each(key, v, func(w *node) {
		some, f := parse(w.Text)
		if f != nil {
			p.flawed(w.Pos, key, listHint(f, key, w, v))
			return
		}
		all = append(all, some...)
	})
	return all
}

// each calls f for each word of v, the value of key. It reports parts of v that are not words.
func (p place) each(key string, v *node, f func(w *node)) {
	switch v.Kind {
	case yamltree.Word:
		f(v)
		return
	case yamltree.Mapping:
		e := p.errorf(v.Pos, "%s must be a value or a list of values, got a mapping", key)
		e.Hint = fmt.Sprintf("write %s: VALUE or %s: [VALUE, VALUE]", key, key)
		if key == "contains" {
			e.Hint = "a text with \": \" or { in it needs quotes"
		}
		return
	case yamltree.Broken:
		return
	}
	if len(v.Items) == 0 {
		p.errorf(v.Pos, "%s is an empty list", key).Hint = emptyHint(key)
	}
	for _, item := range v.Items {
		switch item.Kind {
		case yamltree.Word:
			f(item)
		case yamltree.Broken:
		case yamltree.Nothing:
			p.errorf(item.Pos, "%s has an entry without a value", key).Hint = nullHint(key)
		default:
			p.errorf(item.Pos, "%s has %s among its values", key, item).Hint = itemHint(key, item)
		}
	}
}

func nullHint(key string) string {
	if key == "type" || key == "types" {
		return "remove it; the type NULL, which YAML takes for nothing, is 10"
	}
	return "remove it"
}

func itemHint(key string, item *node) string {
	if key == "dns" && item.Kind == yamltree.Mapping {
		return "write dns: {type: [ANY, TXT]}, without the brackets around {}"
	}
	if item.Kind == yamltree.List {
		return "put all values into one list; a set of addresses can hold them under one name"
	}
	return "a value with \": \" in it needs quotes"
}

func emptyHint(key string) string {
	switch key {
	case "devices":
		return "name the devices that packets come in from: devices: [eth0]"
	case "per":
		return "for one rate for all leave per out"
	case "backends":
		return "name the servers behind this host, or remove the key"
	case "untracked":
		return "name what is not tracked, untracked: [loopback], or remove the key"
	}
	return "no packet could match it; without the key, every packet does"
}

// listHint adds a hint to the flaw f if it has no hint or a less useful one. If the word has separators in it, the author probably meant a list.
func listHint(f *flaw, key string, w, v *node) *flaw {
	parts := strings.FieldsFunc(w.Text, func(r rune) bool { return r == ',' || r == ' ' || r == ';' })
	if f.hint != "" && !strings.HasPrefix(f.hint, "names are") || len(parts) < 2 || len(parts) > 8 {
		return f
	}
	joined := strings.Join(parts, ", ")
	if v.Kind == yamltree.List {
		return f.hintf("write single values: %s", joined)
	}
	return f.hintf("a list needs brackets: %s: [%s]", key, joined)
}

const namePattern = "[A-Za-z0-9_.-]+"

var nameSchema = define("name", bare("^"+namePattern+"$").titled("name").described("Letters, digits, _, . and -."))

// setReference returns the schema of $ and the name of a set.
func setReference(description string) *schema {
	return text(`^\$` + namePattern + "$").described(description)
}

// nameFlaw returns the flaw of the name of a set, rule or service, nil if it is valid. Names are used without quotes in
// messages, test cases and commands.
func nameFlaw(name string) *flaw {
	for _, r := range name {
		if !strings.ContainsRune(nameRunes, r) {
			return want("made of letters, digits, _, . and -", name).hintf("write %s", safeName(name))
		}
	}
	if name == "" {
		return want("made of letters, digits, _, . and -", name)
	}
	return nil
}

const nameRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

func safeName(name string) string {
	safe := strings.Map(func(r rune) rune {
		if strings.ContainsRune(nameRunes, r) {
			return r
		}
		return '-'
	}, name)
	return strings.Trim(fmt.Sprintf("%.40s", safe), "-")
}
