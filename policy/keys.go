package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// key is a key that a mapping may have, and how its value is read. A nil read marks a word that the language has but
// that this version does not support.
type key[T any] struct {
	name string
	read func(p place, to *T, v *node)
}

// readKeys reads the mapping n into to and returns the keys that it has. A key that is likely meant by a misspelt one
// counts as seen, so that one slip is one message. It returns nil when n is no mapping.
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
			p.strays(pairs[i], pairs[i+1:][:cut])
			i += cut
		case k == nil:
			seen[p.unknown(pairs[i], names(keys))] = true
		case k.read == nil:
			p.errorf(pairs[i].Pos, "%s is not supported yet", name)
		case value.Kind == yamltree.Broken:
		case value.Kind == yamltree.Nothing && !mayBeEmpty[name]:
			p.errorf(value.Pos, "%s has no value", name).Hint = noValueHint(name)
		default:
			k.read(p, to, value)
		}
		seen[name] = true
	}
	return seen
}

// mayBeEmpty are the keys that may stand without a value, as they do when everything under them is commented out.
var mayBeEmpty = map[string]bool{"sets": true, "rules": true, "services": true}

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

// names are the names of the supported keys.
func names[T any](keys []key[T]) []string {
	var ns []string
	for _, k := range keys {
		if k.read != nil {
			ns = append(ns, k.name)
		}
	}
	return ns
}

// pairs are the keys of n without repetitions, which it reports. It reports false when n is no mapping.
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

// strays counts the words at the start of pairs that a comma cut off from a value before them: `{port: 80, 443}`.
func strays(pairs []pair, known func(string) bool) (n int) {
	for n < len(pairs) && pairs[n].Value.Kind == yamltree.Nothing && !known(pairs[n].Key) && !strings.Contains(pairs[n].Key, ":") {
		n++
	}
	return n
}

// strays reports words that belong to the value of whole.
func (p place) strays(whole pair, cut []pair) {
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
	case !p.r.lists[whole.Key]:
		e.Hint = fmt.Sprintf("%s has one value: remove what follows it, or put quotes around it", whole.Key)
	default:
		e.Hint = fmt.Sprintf("a list needs brackets: %s: [%s]", whole.Key, strings.Join(values, ", "))
	}
}

// unknown reports a key that the language does not have, and returns the known one that is likely meant, if any.
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

// homes are the keys under which other keys belong.
var homes = map[string]string{
	"rate": "over", "per": "over", "burst": "over", "ban": "over",
	"connections": "over",
	"offset":      "at", "bytes": "at", "mask": "at", "contains": "payload", "nocase": "payload", "within": "payload", "at": "payload",
}

// elsewhere says where a key belongs that is not known here, or is "".
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

// require reports that n lacks key. Without seen, n is no mapping, which has been reported.
func (p place) require(n *node, seen map[string]bool, key, hint string) {
	if seen != nil && !seen[key] && !n.Lacks {
		p.errorf(n.Pos, "%s is missing", key).Hint = hint
	}
}
