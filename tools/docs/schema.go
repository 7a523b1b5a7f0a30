// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/floodwall/floodwall/policy"
)

// schema is a part of the JSON schema, with its keys in the order of the file.
type schema struct {
	root yaml.MapSlice
	at   yaml.MapSlice
}

// readSchema reads the schema of policies with a YAML parser. JSON is YAML, and this parser keeps the order of keys.
func readSchema() (schema, error) {
	var root yaml.MapSlice
	err := yaml.UnmarshalWithOptions(policy.Schema(), &root, yaml.UseOrderedMap())
	return schema{root, root}, err
}

// key is a key of the policy.
type key struct {
	name     string
	typ      string
	doc      string
	def      string // the default, "" for none
	examples []any
	required bool
}

// get returns the value of a keyword.
func (s schema) get(keyword string) (any, bool) {
	for _, item := range s.at {
		if item.Key == keyword {
			return item.Value, true
		}
	}
	return nil, false
}

// text returns the value of a keyword that is a text; "" if it is missing.
func (s schema) text(keyword string) string {
	v, _ := s.get(keyword)
	text, _ := v.(string)
	return text
}

// list returns the value of a keyword that is a list; nil if it is missing.
func (s schema) list(keyword string) []any {
	v, _ := s.get(keyword)
	list, _ := v.([]any)
	return list
}

// part returns a value as a part of the schema.
func (s schema) part(value any) schema {
	at, _ := value.(yaml.MapSlice)
	return schema{s.root, at}
}

// find returns the part at a path from the root, for example $defs/set/anyOf/1. The empty path means the root.
func (s schema) find(path string) (schema, error) {
	at := any(s.root)
	if path == "" {
		return s.part(at), nil
	}
	for step := range strings.SplitSeq(path, "/") {
		var n int
		if list, ok := at.([]any); ok {
			if _, err := fmt.Sscan(step, &n); err != nil || n >= len(list) {
				return s, fmt.Errorf("the schema has no %s", path)
			}
			at = list[n]
			continue
		}
		v, ok := s.part(at).get(step)
		if !ok {
			return s, fmt.Errorf("the schema has no %s", path)
		}
		at = v
	}
	return s.part(at), nil
}

// target follows $ref.
func (s schema) target() schema {
	ref := strings.TrimPrefix(s.text("$ref"), "#/")
	if ref == "" {
		return s
	}
	to, err := s.find(ref)
	if err != nil {
		panic(err) // the schema is embedded in this program, and its tests compile it
	}
	return to
}

// keys lists the keys of the object at path.
func (s schema) keys(path string) ([]key, error) {
	object, err := s.find(path)
	if err != nil {
		return nil, err
	}
	required := map[any]bool{}
	for _, name := range object.list("required") {
		required[name] = true
	}
	properties, _ := object.get("properties")
	var keys []key
	for _, item := range s.part(properties).at {
		k := s.part(item.Value).key(item.Key.(string))
		k.required = required[k.name]
		keys = append(keys, k)
	}
	return keys, nil
}

// otherwise starts the sentence of a description about the default.
const otherwise = "When left out: "

// key reads a property. Missing keywords are taken from the part that the property refers to.
func (s schema) key(name string) key {
	to := s.target()
	k := key{name: name, typ: s.typ(), doc: s.text("description"), examples: s.list("examples")}
	if k.doc == "" {
		k.doc = to.text("description")
	}
	if k.examples == nil {
		k.examples = to.list("examples")
	}
	k.doc, k.def, _ = strings.Cut(k.doc, otherwise)
	k.doc, k.def = strings.TrimSpace(k.doc), strings.TrimSuffix(k.def, ".")
	for _, part := range []schema{s, to} {
		if v, ok := part.get("default"); ok {
			k.def = code(v)
			break
		}
	}
	return k
}

// typ describes the possible values of a part of the schema.
func (s schema) typ() string {
	if title := s.text("title"); title != "" {
		return title
	}
	if s.text("$ref") != "" {
		return s.target().typ()
	}
	if words := s.list("enum"); words != nil {
		return choice(words)
	}
	if v, ok := s.get("const"); ok {
		return code(v)
	}
	if kinds := s.list("anyOf"); kinds != nil {
		return s.either(kinds)
	}
	switch s.text("type") {
	case "array":
		items, _ := s.get("items")
		return "list of: " + s.part(items).typ()
	case "integer":
		return s.number()
	case "object":
		return "mapping"
	}
	return "text"
}

// orList follows the type of a value that can also be a list of such values.
const orList = " …"

// either describes a value with several possible types. It omits a text type that only repeats a number.
func (s schema) either(kinds []any) string {
	var words []string
	for _, kind := range kinds {
		part := s.part(kind)
		switch typ := part.typ(); {
		case len(words) > 0 && typ == "list of: "+words[len(words)-1]:
			words[len(words)-1] += orList
		case typ == "mapping", len(words) > 0 && part.text("pattern") != "" && part.text("title") == "":
		default:
			words = append(words, typ)
		}
	}
	return strings.Join(words, ", or ")
}

func (s schema) number() string {
	least, _ := s.get("minimum")
	if most, ok := s.get("maximum"); ok {
		return fmt.Sprintf("number %v to %v", least, most)
	}
	return fmt.Sprintf("number from %v", least)
}

// choice lists words. It omits synonyms in the schema, for example true for on.
func choice(words []any) string {
	var list []string
	for _, w := range words {
		switch w {
		case "true", "false", "yes", "no", "on", "off":
			if words[0] == true {
				continue
			}
		}
		list = append(list, code(w))
	}
	return strings.Join(list, ", ")
}

// code returns a value in a policy's notation, in one line.
func code(v any) string { return "`" + flow(v) + "`" }

// flow returns a value in YAML's flow form.
func flow(v any) string {
	switch v := v.(type) {
	case yaml.MapSlice:
		var parts []string
		for _, item := range v {
			parts = append(parts, fmt.Sprintf("%v: %s", item.Key, flow(item.Value)))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, flow(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		if strings.ContainsAny(v, ",|#{}[]:") && !isAddress(v) {
			quoted, _ := json.Marshal(v)
			return string(quoted)
		}
		return v
	}
	return fmt.Sprint(v)
}

// isAddress reports whether a text has colons like an IPv6 address, which needs no quotes.
func isAddress(text string) bool {
	return strings.Contains(text, "::") && !strings.ContainsAny(text, ",|#{}[] ") && !strings.HasSuffix(text, ":")
}
