// SPDX-License-Identifier: Apache-2.0

package control

import (
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestBridgedNotes applies a policy to a bridge: while br_netfilter passes bridged packets to netfilter, and while it does not.
func TestBridgedNotes(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}); err != nil {
		t.Fatal(err)
	}
	m := &manifest.Manifest{Target: plan.TargetNftables, Devices: []string{"br0"}, Default: "drop", At: plan.Assignment{Stage: plan.StageFilter}}
	for setting, want := range map[string]string{"0": "", "1": "sysctl -w net.bridge.bridge-nf-call-iptables=0"} {
		for _, name := range []string{"iptables", "ip6tables"} {
			if err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+name, []byte(setting), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if notes := strings.Join(bridgedNotes(m), "\n"); !strings.Contains(notes, want) || (notes == "") != (want == "") {
			t.Errorf("setting %s: %q, want %q", setting, notes, want)
		}
	}
	m.At.Stage = plan.StageIngress
	if notes := bridgedNotes(m); len(notes) > 0 {
		t.Errorf("what drops at ingress alone: %q", notes)
	}
}
