// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCI checks that every kind has a bound in CI, with a reason.
func TestCI(t *testing.T) {
	bounds, err := Read("../../../.ci/instructions.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(bounds) != len(Kinds()) {
		t.Errorf("%d bounds, want one for each of %v", len(bounds), Kinds())
	}
	for _, b := range bounds {
		if b.Why == "" {
			t.Errorf("%s: no reason", b.Kind)
		}
	}
}

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bounds.json")
	for text, want := range map[string]string{
		`[]`:                                          "no bound is in it",
		`[{"kind": "syn", "most": 0}]`:                "bound 1: most must be positive, got 0",
		`[{"kind": "syn", "most": "9"}]`:              "cannot unmarshal string",
		`[{"kind": "rules=7", "most": 9}]`:            `bound 1: unknown kind "rules=7", the kinds are [empty `,
		`[{"of": "syn", "by": "empty", "most": 2.5}]`: `unknown field "of"`,
		`[{"kind": "syn", "most": 9}, {"kind": "syn", "most": 9}]`: `bound 2: kind "syn" has one already`,
		`[{"kind": "syn", "most": 9}] []`:                          "text follows the array",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	if _, err := Read(file + "x"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no file: %v", err)
	}
}

// TestFinding tests bounds that a figure of 1,000 exceeds, meets, and is far below.
func TestFinding(t *testing.T) {
	for most, want := range map[int]string{999: "exceeded", 1000: "", 1020: "", 1052: "", 1053: "loose"} {
		f := Finding{Bound: Bound{Most: most}}
		f.Instructions = 1000
		got := ""
		if f.Exceeded() {
			got += "exceeded"
		}
		if f.Loose() {
			got += "loose"
		}
		if got != want || f.NewMost() != 1020 {
			t.Errorf("1000 of %d: %q, new bound %d, want %q, 1020", most, got, f.NewMost(), want)
		}
	}
}
