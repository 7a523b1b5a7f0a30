package control

import (
	"slices"
	"testing"

	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// TestLimitNames names the limits of rules with one and with several: no two have one name, and one alone has the rule's.
func TestLimitNames(t *testing.T) {
	got := limitNames([]manifest.Limit{{Rule: "web"}, {Rule: "dns:limit"}, {Rule: "web", Unused: true}, {Rule: "dns:limit"}, {Rule: "dns:total"}})
	if want := []string{"web", "dns:limit/1", "web", "dns:limit/2", "dns:total"}; !slices.Equal(got, want) { // nobody is told of one that is not used
		t.Errorf("got %q, want %q", got, want)
	}
}
