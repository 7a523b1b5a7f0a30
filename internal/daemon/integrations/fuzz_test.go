// SPDX-License-Identifier: Apache-2.0

package integrations

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/floodwall/floodwall/policy"
)

// FuzzAlert parses any line as an alert of Suricata. A ban must be of one address, not longer than the policy allows, and with a printable reason.
func FuzzAlert(f *testing.F) {
	now := time.Date(2026, 11, 22, 22, 24, 40, 0, time.UTC)
	for _, line := range []string{alertLine, realLine, forgedLine, "{}", `{"alert"}`} {
		f.Add([]byte(strings.ReplaceAll(line, "TIME", now.Format(eveTime))), true, true)
		f.Add([]byte(line), false, false)
	}
	f.Fuzz(func(t *testing.T, line []byte, all, forgeable bool) {
		of := policy.Suricata{For: time.Hour, All: all, Forgeable: forgeable}
		b, why, err := read(line, of, now)
		if why != "" || err != nil || !b.Prefix.IsValid() {
			if b.Prefix.IsValid() || why != "" && err != nil {
				t.Errorf("%+v, %q, %v", b, why, err)
			}
			return
		}
		if !b.Prefix.IsSingleIP() || b.Prefix.Addr().Is4In6() || b.Prefix.Addr().Zone() != "" || b.Until.Sub(now) < time.Second || b.Until.Sub(now) > of.For {
			t.Errorf("%+v", b)
		}
		if strings.ContainsFunc(b.Why, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q cannot be printed", b.Why)
		}
	})
}

// FuzzDecisions parses any bytes as an answer of CrowdSec. The whole answer must be accepted or refused, and texts must have a limited length.
func FuzzDecisions(f *testing.F) {
	for _, text := range []string{whole, `{"new":null,"deleted":null}`, `{"new":[{"scope":"Range","value":"2001:db8::/32","duration":"-1s"}]}`, "[]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := readAnswer(json.NewDecoder(strings.NewReader(text)))
		if err != nil {
			return
		}
		for _, d := range append(a.fresh, a.deleted...) {
			for _, part := range []string{d.Scenario, d.Scope, d.Value, d.Type, d.Duration} {
				if len(part) > mostText {
					t.Errorf("a text of %d bytes is kept", len(part))
				}
			}
			if p, err := prefixOf(d); err == nil && (!p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || p.Addr().Zone() != "") {
				t.Errorf("%+v is about %s", d, p)
			}
		}
	})
}
