// SPDX-License-Identifier: Apache-2.0

package subject_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/subject"
)

// spelling are the enums whose words are names for numbers, or other spellings of one value. Random policies need not use all of these words.
var spelling = []string{"codePoint", "dnsType", "tcpFlags", "icmpMessage", "protocol", "switch", "off", "checkSwitch", "service.track", "fragmentKind", "boot", "checks"}

// noMeaning are the keys that random policies do not use, because these keys change no verdict or need a file. The value says to what the key
// applies.
var noMeaning = map[string]string{
	"boot": "of the time before a policy", "daemon": "of the daemon", "detect": "of the daemon", "upstream": "of other routers", "never": "of bans",
	"xdp": "of where the program runs", "deviceOptions": "likewise",
	"placement": "of where rules run", "rule.placement": "likewise", "router": "of other routers", "routeFamily": "likewise", "guard.secret": "a file",
}

// TestEveryKey checks that random policies use all keys and enum words of the schema, except those in noMeaning and spelling.
func TestEveryKey(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(policy.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	u := &usage{defs: schema["$defs"].(map[string]any), known: map[string]bool{}, used: map[string]bool{}}
	u.list("", schema)
	for i := range 400 {
		r := rand.New(rand.NewPCG(5, uint64(i)))
		w := &subject.Writer{Rand: r, Stateful: i%4 == 0, Tracking: i%4 == 0, Payload: i%2 == 1, Full: i%4 > 0}
		text, _ := w.Policy(t, 30)
		var doc any
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		u.note("", schema, doc)
	}
	var never []string
	for _, name := range slices.Sorted(maps.Keys(u.known)) {
		top, _, _ := strings.Cut(strings.ReplaceAll(name, "=", "."), ".")
		if u.known[name] && !u.used[name] && noMeaning[name] == "" && noMeaning[top] == "" {
			never = append(never, name)
		}
	}
	if len(never) > 0 {
		t.Errorf("%d of %d keys and words are never used:\n%s", len(never), len(u.known), strings.Join(never, "\n"))
	}
}

// usage has the keys and enum words of a schema. It records which of them policies have used. The name of a key starts with the definition that
// contains the key.
type usage struct {
	defs        map[string]any
	known, used map[string]bool
}

// forms returns the alternatives (anyOf) of a schema, with references resolved. Each form has the name of its definition.
func (u *usage) forms(name string, schema any) (list []form) {
	s, _ := schema.(map[string]any)
	if ref, ok := s["$ref"].(string); ok {
		def := strings.TrimPrefix(ref, "#/$defs/")
		return u.forms(def, u.defs[def])
	}
	if any, ok := s["anyOf"].([]any); ok {
		for _, alternative := range any {
			list = append(list, u.forms(name, alternative)...)
		}
		return list
	}
	return []form{{name, s}}
}

type form struct {
	name   string
	schema map[string]any
}

func (f form) key(key string) string { return strings.TrimPrefix(f.name+"."+key, ".") }

// words returns the words of an enum, in the format NAME=WORD.
func (f form) words() (list []string) {
	for _, word := range asList(f.schema["enum"]) {
		list = append(list, fmt.Sprintf("%s=%v", f.name, word))
	}
	return list
}

func asList(v any) []any { list, _ := v.([]any); return list }

// list records all keys and words of a schema as known.
func (u *usage) list(name string, schema any) {
	for _, f := range u.forms(name, schema) {
		for _, word := range f.words() {
			u.known[word] = !slices.Contains(spelling, f.name) || strings.HasSuffix(word, "=observe")
		}
		if items := f.schema["items"]; items != nil {
			u.list(f.name, items)
		}
		properties, _ := f.schema["properties"].(map[string]any)
		for key, value := range properties {
			if !u.known[f.key(key)] {
				u.known[f.key(key)] = true
				u.list(f.key(key), value)
			}
		}
	}
}

// note records the keys and words of a schema that a document uses.
func (u *usage) note(name string, schema, doc any) {
	for _, f := range u.forms(name, schema) {
		switch doc := doc.(type) {
		case map[string]any:
			properties, _ := f.schema["properties"].(map[string]any)
			for key, value := range doc {
				if properties[key] != nil {
					u.used[f.key(key)] = true
					u.note(f.key(key), properties[key], value)
				} else if more := f.schema["additionalProperties"]; more != nil {
					u.note(f.key("*"), more, value)
				}
			}
		case []any:
			for _, item := range doc {
				u.note(f.name, f.schema["items"], item)
			}
		default:
			if word := fmt.Sprintf("%s=%v", f.name, doc); slices.Contains(f.words(), word) {
				u.used[word] = true
			}
		}
	}
}
