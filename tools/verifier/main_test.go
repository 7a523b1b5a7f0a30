// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRenew checks that new results replace the known ones of the same version, and that the others are kept.
func TestRenew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "verifier.json")
	for _, said := range []string{
		`{"6.1": {"release": "6.1.0-1", "programs": {"old": {"instructions": 1}}}, "6.18": {"release": "6.18.1", "programs": {}}}`,
		`{"6.1": {"release": "6.1.0-2", "programs": {"p": {"instructions": 2, "states": 3, "peak": 1, "stack": 8}}}}` + "\n" + `{"6.12": {"release": "6.12.3"}}`,
	} {
		if err := renew([]string{path}, strings.NewReader(said)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	for _, want := range []string{"6.1.0-2", "6.12.3", "6.18.1", `"instructions": 2`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v, no %s in\n%s", err, want, text)
		}
	}
	if strings.Contains(string(text), "old") {
		t.Errorf("what was known stays:\n%s", text)
	}
	for _, wrong := range []string{"", "{"} {
		if err := renew([]string{path}, strings.NewReader(wrong)); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
