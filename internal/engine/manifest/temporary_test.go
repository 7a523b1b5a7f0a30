// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTemporaryJSON checks that a manifest stores the end of a temporary rule on the kernel's clock. The JSON of a single rule must not contain this
// end.
func TestTemporaryJSON(t *testing.T) {
	rule := Temporary{Name: "t", Owner: "auto", Rule: "{name: t, proto: udp, then: drop}", Until: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), Ends: time.Hour}
	shown, err := json.Marshal(rule)
	if err != nil || strings.Contains(string(shown), "ends") {
		t.Errorf("a rule is shown as %s, %v", shown, err)
	}
	text, err := json.Marshal(&Manifest{Temporary: []Temporary{rule, {Name: "old"}}})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), `"ends":3600000000000`); n != 1 {
		t.Errorf("the manifest has the end %d times: %s", n, text)
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil || !slices.Equal(m.Temporary, Temporaries{rule, {Name: "old"}}) {
		t.Errorf("read again: %+v, %v", m.Temporary, err)
	}
	text, err = json.Marshal(&Manifest{})
	if err != nil || strings.Contains(string(text), "temporary") {
		t.Errorf("without rules: %s, %v", text, err)
	}
}
