// SPDX-License-Identifier: Apache-2.0

package control

import (
	"slices"
	"testing"

	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// TestLimitNames tests the names of limits of rules with one limit and with several. Used limits must have distinct names. The only limit of a rule
// must have the rule's name.
func TestLimitNames(t *testing.T) {
	got := limitNames([]manifest.Limit{{Rule: "web"}, {Rule: "dns:limit"}, {Rule: "web", Unused: true}, {Rule: "dns:limit"}, {Rule: "dns:total"}})
	if want := []string{"web", "dns:limit/1", "web", "dns:limit/2", "dns:total"}; !slices.Equal(got, want) { // an unused limit is not shown
		t.Errorf("got %q, want %q", got, want)
	}
}
