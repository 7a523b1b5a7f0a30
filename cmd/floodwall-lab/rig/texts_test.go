// SPDX-License-Identifier: Apache-2.0

package rig

import "testing"

// TestSearched checks that a policy accepts the texts, and that all are different.
func TestSearched(t *testing.T) {
	seen := map[string]bool{}
	for _, text := range Texts(MostStrings) {
		if len(text) < 1 || len(text) > 64 || seen[text] {
			t.Errorf("text %q: of %d bytes, seen before: %v", text, len(text), seen[text])
		}
		seen[text] = true
	}
	if len(seen) != MostStrings || !seen["evil.example"] {
		t.Errorf("%d texts", len(seen))
	}
}
