// SPDX-License-Identifier: Apache-2.0

package control

import (
	"slices"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// TestXDPIgnored checks the notes on keys xdp, of the policy and of devices, that a target or a mode leaves without effect.
func TestXDPIgnored(t *testing.T) {
	p, err := policy.Parse("policy.yaml", []byte("devices: [fw0, {name: fw1, xdp: never}, {name: fw2, xdp: always}]\nxdp: flooded\ndefault: pass\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		target plan.Target
		mode   datapath.Mode
		want   []string
	}{
		{plan.TargetXDP, datapath.Auto, nil},
		{plan.TargetXDP, datapath.Keep, nil},
		{plan.TargetXDP, datapath.Generic, []string{
			"`xdp: flooded` has no effect, because mode generic was asked for; `--mode auto` ends that",
			"`xdp: never` of device fw1 has no effect, because mode generic was asked for; `--mode auto` ends that"}},
		{plan.TargetNftables, datapath.Auto, []string{
			"`xdp: flooded` has no effect on target nftables", "`xdp: never` of device fw1 has no effect on target nftables"}},
	} {
		if got := xdpIgnored(&manifest.Manifest{Target: c.target, Mode: c.mode}, p); !slices.Equal(got, c.want) {
			t.Errorf("target %s, mode %s: %q, want %q", c.target, c.mode, got, c.want)
		}
	}
}
