package operate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
)

// TestAsRunning checks that orders follow the running policy: each device once, and generic mode if XDP is in it on all devices.
func TestAsRunning(t *testing.T) {
	for _, test := range []struct {
		name    string
		target  plan.Target
		devices []control.DeviceStatus
		want    Order
	}{
		{"generic", plan.TargetXDP, []control.DeviceStatus{{Name: "b", Mode: "generic"}, {Name: "a", Mode: "generic"}, {Name: "b", Stage: plan.StageRaw}},
			Order{Target: "xdp", Mode: "generic", Devices: []string{"a", "b"}}},
		{"one of two is native", plan.TargetXDP, []control.DeviceStatus{{Name: "a", Mode: "generic"}, {Name: "b", Mode: "native"}},
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
