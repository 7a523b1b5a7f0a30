package control_test

import (
	"testing"

	"github.com/floodwall/floodwall/internal/engine/control"
)

// TestFillWarning has the warning of a set at its bounds. The daemon ended with a division by zero when it was stopped while it
// entered bans: the Fill that comes with an error has no capacity.
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
