// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// key is a key that a mapping may have. The parser, the JSON schema, the reference and the manual page are all made from tables of keys.
type key[T any] struct {
	name  string
	value value[T]
	doc   string // its meaning, in Markdown; a default that is not a constant is in its last sentence, "When left out: …."
	must  string // the hint when the key is missing; "": it is optional

	usual    string // the default, as JSON; "": doc describes the default, or there is none
	examples string // values, as JSON, with commas between them
}

// value has the schema of a key's value, and the function that reads the value into a T.
type value[T any] struct {
	schema *schema
	read   func(p place, key string, to *T, v *node)
}

// form is a form of values: its schema and its reader.
type form[V any] struct {
	schema *schema
	read   func(p place, key string, v *node) V
}

// into returns the value of a key that is parsed by the form f. field returns the field of T that stores it.
func into[T, V any](f form[V], field func(*T) *V) value[T] {
	return value[T]{f.schema, func(p place, key string, to *T, v *node) { *field(to) = f.read(p, key, v) }}
}

// custom returns the value of a key that is read by the function read and has the schema s.
func custom[T any](read func(p place, to *T, v *node), s *schema) value[T] {
	return value[T]{s, func(p place, _ string, to *T, v *node) { read(p, to, v) }}
}

// word returns the form of single values.
func word[V any](s *schema, parse func(string) (V, *flaw)) form[V] {
	return form[V]{s, func(p place, key string, v *node) V { return scalarOf(p, key, v, parse) }}
}

// list returns the form of alternatives: a word, or a list of words. s is the schema of one word.
func list[V any](s *schema, parse func(string) ([]V, *flaw)) form[[]V] {
	return form[[]V]{listOf(s), func(p place, key string, v *node) []V { return values(p, key, v, parse) }}
}

// schema returns the schema of the key's value, with the description, the default and the examples from the table.
func (k *key[T]) schema() *schema {
	s := *k.value.schema
	s.Description = cmp.Or(k.doc, s.Description)
	if k.usual != "" {
		s.Default = json.RawMessage(k.usual)
	}
	if k.examples != "" {
		return s.withExamples(k.examples)
	}
	return &s
}

// defaults returns a T with the defaults of keys, as if a policy had set them at the position at.
func defaults[T any](at Pos, keys []key[T]) (to T) {
	p := place{r: new(reader)}
	for _, k := range keys {
		if k.usual != "" {
			k.value.read(p, k.name, &to, k.node(at))
		}
	}
	return to
}

// node returns the default of k as a node with the position at: a word, or a list of words.
func (k *key[T]) node(at Pos) *node {
	word := func(text []byte) *node { return &node{Pos: at, Text: strings.Trim(string(text), `"`)} }
	var items []json.RawMessage
	if json.Unmarshal([]byte(k.usual), &items) != nil {
		return word([]byte(k.usual))
	}
	list := &node{Pos: at, Kind: yamltree.List}
	for _, item := range items {
		list.Items = append(list.Items, word(item))
	}
	return list
}

// lists reports whether the value of the key can be a list.
func (k *key[T]) lists() bool {
	return k != nil && slices.ContainsFunc(k.value.schema.AnyOf, func(s *schema) bool { return slices.Contains(s.Type, "array") })
}

// readKeys reads the mapping n into to and returns the keys that it has. The likely meaning of a misspelt key counts as
// seen, so that one mistake gives one message. readKeys returns nil if n is not a mapping. It reports required keys that n lacks.
func readKeys[T any](p place, what string, n *node, keys []key[T], to *T) map[string]bool {
	pairs, ok := p.pairs(what, n)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for i := 0; i < len(pairs); i++ {
		name, value := pairs[i].Key, pairs[i].Value
		k, cut := find(keys, name), 0
		if n.Flow {
			cut = strays(pairs[i+1:], func(name string) bool { return find(keys, name) != nil })
		}
		switch {
		case cut > 0:
			p.strays(pairs[i], k.lists(), pairs[i+1:][:cut])
			i += cut
		case k == nil:
			seen[p.unknown(pairs[i], names(keys))] = true
		case value.Kind == yamltree.Broken:
		case value.Kind == yamltree.Nothing && !slices.Contains(k.value.schema.Type, "null"):
			p.errorf(value.Pos, "%s has no value", name).Hint = noValueHint(name)
		default:
			k.value.read(p, name, to, value)
		}
		seen[name] = true
	}
	for _, k := range keys {
		if k.must != "" {
			p.require(n, seen, k.name, k.must)
		}
	}
	return seen
}

func noValueHint(key string) string {
	switch key {
	case "contains", "bytes", "mask":
		return "a text with # in it needs quotes, as # begins a comment"
	case "type", "types":
		return "give it one; the type NULL, which YAML takes for nothing, is 10"
	}
	return "give it one, or remove the key"
}

func find[T any](keys []key[T], name string) *key[T] {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

func names[T any](keys []key[T]) []string {
	var ns []string
	for _, k := range keys {
		ns = append(ns, k.name)
	}
	return ns
}

// pairs returns the keys of n with their values. It reports repeated keys, and leaves them out. It returns false if n
// is not a mapping.
func (p place) pairs(what string, n *node) ([]pair, bool) {
	if n.Kind == yamltree.Broken {
		return nil, false
	}
	if n.Kind != yamltree.Mapping {
		p.errorf(n.Pos, "%s must be a mapping, got %s", what, n).Hint = mappingHint(n)
		return nil, false
	}
	first := make(map[string]Pos, len(n.Pairs))
	var once []pair
	for _, e := range n.Pairs {
		if at, ok := first[e.Key]; ok {
			p.errorf(e.Pos, "key %s appears twice, first in line %d", wording.Quote(e.Key), at.Line).Hint = "remove one of them"
			continue
		}
		first[e.Key] = e.Pos
		once = append(once, e)
	}
	return once, true
}

func mappingHint(n *node) string {
	switch {
	case n.Kind == yamltree.Word && strings.Contains(n.Text, ":"):
		return "put a space behind each colon, and each key in a line of its own"
	case n.Kind == yamltree.List:
		return "write key: value, without the -"
	}
	return "write it as {key: value} or as lines of key: value"
}

// strays counts the words at the start of pairs that a comma has separated from the value before them: `{port: 80,
// 443}`.
func strays(pairs []pair, known func(string) bool) (n int) {
	for n < len(pairs) && pairs[n].Value.Kind == yamltree.Nothing && !known(pairs[n].Key) && !strings.Contains(pairs[n].Key, ":") {
		n++
	}
	return n
}

// strays reports words that belong to the value of whole. isList tells whether that value can be a list.
func (p place) strays(whole pair, isList bool, cut []pair) {
	values := []string{whole.Value.Text}
	for _, c := range cut {
		values = append(values, c.Key)
	}
	e := p.errorf(cut[0].Pos, "%s is no key: a comma in {} ends the value before it", wording.Quote(cut[0].Key))
	switch {
	case whole.Value.Kind != yamltree.Word:
		e.Hint = "put it inside the brackets of " + whole.Key
	case whole.Key == "flags":
		e.Hint = fmt.Sprintf(`put quotes around it: flags: "%s"`, strings.Join(values, ","))
	case !isList:
		e.Hint = fmt.Sprintf("%s has one value: remove what follows it, or put quotes around it", whole.Key)
	default:
		e.Hint = fmt.Sprintf("a list needs brackets: %s: [%s]", whole.Key, strings.Join(values, ", "))
	}
}

// unknown reports an unknown key. It returns the known key that is likely meant, "" if there is none.
func (p place) unknown(e pair, known []string) string {
	err := p.errorf(e.Pos, "unknown key %s", wording.Quote(e.Key))
	near := wording.Nearest(e.Key, known)
	if before, after, ok := strings.Cut(e.Key, ":"); ok && slices.Contains(known, before) {
		err.Hint = fmt.Sprintf("put a space behind the colon: %s: %s", before, strings.TrimLeft(after, ": "))
		return before
	}
	if slices.Contains(notTracked, e.Key) && slices.Contains(known, "track") {
		err.Hint = "write track: false"
		return "track"
	}
	if p.r.inEntry[e.Key] && p.what == "" {
		err.Hint = "it belongs to a rule or service: indent it like the other keys of that"
		return ""
	}
	if hint := elsewhere(e.Key, known); hint != "" {
		err.Hint = hint
		return ""
	}
	if near == "" {
		err.Hint = "the keys here are " + strings.Join(known, ", ")
		return ""
	}
	err.Hint = fmt.Sprintf("did you mean %q?", near)
	return near
}

// homes maps keys to the key under which they belong.
var homes = map[string]string{
	"rate": "over", "per": "over", "burst": "over", "ban": "over",
	"connections": "over",
	"offset":      "at", "bytes": "at", "mask": "at", "contains": "payload", "nocase": "payload", "within": "payload", "at": "payload",
}

// elsewhere returns a hint for a key that is unknown here: the place where it belongs. It returns "" if there is no such place.
func elsewhere(key string, known []string) string {
	home := homes[key]
	switch {
	case slices.Contains(known, home):
		return fmt.Sprintf("it belongs to %s: %s: {%s: …}", home, home, key)
	case slices.Contains(known, "rate") && slices.Contains([]string{"then", "slip", "sample", "observe"}, key):
		return "it belongs to the rule, beside over"
	case slices.Contains(known, "rate") && key == "connections":
		return "only over of a rule counts connections"
	case slices.Contains(known, "track") && key == "placement":
		return "it belongs to a rule or, for all of them and services, to the policy"
	case slices.Contains(known, "track") && slices.Contains([]string{"over", "payload", "dns", "then", "observe", "sample"}, key):
		return "it belongs to a rule: rules are asked before services"
	}
	return ""
}

// require reports that n lacks key. If seen is nil, n is not a mapping, which has been reported already.
func (p place) require(n *node, seen map[string]bool, key, hint string) {
	if seen != nil && !seen[key] && !n.Lacks {
		p.errorf(n.Pos, "%s is missing", key).Hint = hint
	}
}
