// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// at returns the sorted keys of the object, or the sorted words of the list, at a path of the schema.
func at(t *testing.T, path string) []string {
	t.Helper()
	var v any
	if err := json.Unmarshal(schemaAt(t, path), &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	switch v := v.(type) {
	case map[string]any:
		return sorted(v)
	case []any:
		var words []string
		for _, w := range v {
			text, err := json.Marshal(w)
			if err != nil {
				t.Fatal(err)
			}
			words = append(words, strings.Trim(string(text), `"`))
		}
		return slices.Sorted(slices.Values(words))
	}
	t.Fatalf("the schema has nothing at %s", path)
	return nil
}

// schemaAt returns the part of the schema at a path.
func schemaAt(t *testing.T, path string) json.RawMessage {
	t.Helper()
	v := json.RawMessage(Schema())
	for step := range strings.SplitSeq(path, "/") {
		var object map[string]json.RawMessage
		var list []json.RawMessage
		if json.Unmarshal(v, &object) == nil {
			v = object[step]
		} else if n, f := number(step, 100); json.Unmarshal(v, &list) == nil && f == nil && int(n) < len(list) {
			v = list[n]
		} else {
			t.Fatalf("the schema has nothing at %s", path)
		}
	}
	return v
}
