// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/ban"
)

// TestTerms parses the terms after the prefix in lines of `block -`.
func TestTerms(t *testing.T) {
	for line, want := range map[string]struct {
		terms Terms
		err   string
	}{
		"192.0.2.1":                                         {},
		"192.0.2.1 for=10m":                                 {terms: Terms{For: 10 * time.Minute}},
		" 192.0.2.1   why=guesses for=1h\r":                 {terms: Terms{Why: "guesses for=1h"}},
		"192.0.2.1 for=forever why=a = b":                   {terms: Terms{For: ban.Forever, Why: "a = b"}},
		"192.0.2.1 # for=1h":                                {},
		"192.0.2.1 ; SBL123 for=1h":                         {},
		"192.0.2.1 seen 12 times, score=7":                  {},
		"192.0.2.1 for=1h last seen yesterday":              {terms: Terms{For: time.Hour}},
		"192.0.2.1 for=":                                    {err: "for= has no time"},
		"192.0.2.1 for=soon":                                {err: `for "soon" is not a time`},
		"192.0.2.1 fro=1h":                                  {err: `unknown term "fro"`},
		"192.0.2.1 for=1h " + strings.Repeat("x", 99) + "=": {err: "unknown term"},
	} {
		got, err := TermsOf([]byte(line))
		if got != want.terms || (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%q: %+v, %v, want %+v, %q", line, got, err, want.terms, want.err)
		}
	}
}
