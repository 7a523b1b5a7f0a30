// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"testing"

	"github.com/floodwall/floodwall/internal/engine/control"
)

// TestFillWarning tests the warning about a set at its limits. The Fill that comes with an error has no capacity. The daemon once divided by it, when
// it was stopped while it added bans.
func TestFillWarning(t *testing.T) {
	for _, test := range []struct {
		fill control.Fill
		want string
	}{
		{control.Fill{}, ""},
		{control.Fill{Set: "bans", Entries: 89, Capacity: 100}, ""},
		{control.Fill{Set: "bans", Entries: 90, Capacity: 100},
			`set "bans" is 90% full: 90 of 100 entries; raise its max in the policy and apply`},
	} {
		if got := test.fill.Warning(); got != test.want {
			t.Errorf("%+v: %q, want %q", test.fill, got, test.want)
		}
	}
}
