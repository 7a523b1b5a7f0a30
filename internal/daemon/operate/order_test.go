// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
)

// TestAsRunning checks that orders follow the running policy, with each device once. They ask for no mode: the present one stays.
func TestAsRunning(t *testing.T) {
	for _, test := range []struct {
		name    string
		target  plan.Target
		devices []control.DeviceStatus
		want    Order
	}{
		{"generic", plan.TargetXDP, []control.DeviceStatus{{Name: "b", Mode: "generic"}, {Name: "a", Mode: "generic"}, {Name: "b", Stage: plan.StageRaw}},
			Order{Target: "xdp", Devices: []string{"a", "b"}}},
		{"netfilter", plan.TargetNftables, []control.DeviceStatus{{Name: "a"}}, Order{Target: "nftables", Devices: []string{"a"}}},
	} {
		var o Order
		o.AsRunning(&control.Status{Target: test.target, Devices: test.devices})
		if diff := cmp.Diff(test.want, o); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
