// SPDX-License-Identifier: Apache-2.0

package wording_test

import (
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// TestNearest checks words of other firewalls, swapped and missing letters, and words that are too different from all known ones.
func TestNearest(t *testing.T) {
	known := []string{"pass", "drop", "reject", "devices", "untracked"}
	for text, want := range map[string]string{
		"accept": "pass", "BLOCK": "drop", "dorp": "drop", "drp": "drop", "devicse": "devices", "untraked": "untracked", "xyz": "", "": "",
	} {
		if got := wording.Nearest(text, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestText checks the forms of words in messages.
func TestText(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{wording.Quote("a\n\"b"), `"a\n\"b"`},
		{wording.Quote(strings.Repeat("ä", 81)), `"` + strings.Repeat("ä", 80) + `"…`},
		{wording.Either(nil), ""},
		{wording.Either([]string{"a"}), "a"},
		{wording.Either([]string{"a", "b", "c"}), "a, b or c"},
		{wording.Printable("a\x1b[2Jb"), "a\ufffd[2Jb"},
		{wording.Plain("a\x1b[2J\tb"), "a\ufffd[2J\ufffdb"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
