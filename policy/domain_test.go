// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"

	"github.com/floodwall/floodwall/policy"
)

// TestDomain checks names at the limits of RFC 1035.
func TestDomain(t *testing.T) {
	label := strings.Repeat("a", 63)
	longest := strings.Join([]string{label, label, label, label[:61]}, ".")
	for _, c := range []struct{ text, want string }{
		{".", ""},
		{"Evil.Example.", "evil.example"},
		{"_dmarc.x-1.example", "_dmarc.x-1.example"},
		{label + ".example", label + ".example"},
		{longest, longest},
		{longest + ".", longest},
	} {
		if got, err := policy.Domain(c.text); err != nil || got != c.want {
			t.Errorf("%q is %q, %v, want %q", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{
		"", "..", ".example", "a..b", "*.example", label + "a.example", longest + "a", "a b", "a/b", "b\u00fccher.example", "\x00",
		// The Kelvin sign is not ASCII, but its lower case is the ASCII letter k.
		"\u212a.example",
	} {
		if got, err := policy.Domain(text); err == nil {
			t.Errorf("%q is read as %q, want an error", text, got)
		}
	}
}
