// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestCalibrate makes a whole calibration, in a minute.
func TestCalibrate(t *testing.T) {
	testutil.RequireRoot(t)
	if os.Getenv("FLOODWALL_LONG") == "" {
		t.Skip("set FLOODWALL_LONG=1: TestExperiments/placement calibrates as well, but for iptables")
	}
	before := look(t)
	c, err := Calibrate(t.Context(), tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	if left := before.leftovers(t, 0); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	stages := []string{"iptables/filter", "iptables/raw", "nftables/filter", "nftables/ingress", "nftables/raw", "xdp/xdp"}
	if got := slices.Sorted(maps.Keys(c.Model.Work)); !slices.Equal(got, stages) {
		t.Errorf("work is known at %v, want %v", got, stages)
	}
	state := t.TempDir()
	if err := c.Model.Write(state); err != nil {
		t.Fatal(err)
	}
	if _, err := cost.Read(state, c.Model.Host); err != nil {
		t.Errorf("what was written is refused: %v", err)
	}
}
