// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/policy"
)

// TestReference checks that the schema, docs/policy.md and the manual page match the keys of policies and the compiler.
func TestReference(t *testing.T) {
	text, roff, err := reference()
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"policy/schema.json": string(policy.Schema()), "docs/policy.md": text, "docs/floodwall-policy.5": roff} {
		got, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is stale: run make generate (-want +got):\n%s", file, diff)
		}
	}
}

// TestManualHasAllKeys looks for each key of the schema in the manual page.
func TestManualHasAllKeys(t *testing.T) {
	roff, err := os.ReadFile("../../docs/floodwall-policy.5")
	if err != nil {
		t.Fatal(err)
	}
	s, err := readSchema()
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	var look func(at any)
	look = func(at any) {
		switch at := at.(type) {
		case []any:
			for _, v := range at {
				look(v)
			}
		case yaml.MapSlice:
			for _, item := range at {
				look(item.Value)
				properties, _ := item.Value.(yaml.MapSlice)
				for _, p := range properties {
					// \fB is bold.
					if name := fmt.Sprint(p.Key); item.Key == "properties" && !strings.Contains(string(roff), `\fB`+name+`\fP`) {
						missing = append(missing, name)
					}
				}
			}
		}
	}
	look(s.root)
	if missing != nil {
		t.Errorf("the manual page lacks the keys %v", missing)
	}
}
