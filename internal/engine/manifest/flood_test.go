// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"encoding/json"
	"testing"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// TestHome looks up the setting of a device by its name in the policy and by the kernel's name, in manifests of this version and of an earlier one.
func TestHome(t *testing.T) {
	for text, want := range map[string]policy.XDPTime{
		`{"devices":["uplink"],"xdp":{"when":"flooded","start":5}}`:                                         policy.XDPFlooded, // of an earlier version
		`{"devices":["uplink"],"homes":{"uplink":{"when":"flooded","name":"fw0"}}}`:                         policy.XDPFlooded,
		`{"devices":["uplink"],"homes":{"uplink":{"when":"always","name":"fw0"}},"xdp":{"when":"flooded"}}`: policy.XDPAlways,
		`{"devices":["uplink"]}`: policy.XDPAlways,
		`{"devices":["uplink"],"homes":{"uplink":{"when":"never","name":"fw0"},"fw1":{"when":"flooded"}}}`:     policy.XDPNever,
		`{"devices":["uplink","fw0"],"homes":{"uplink":{"when":"never","name":"fw0"},"fw0":{"when":"never"}}}`: policy.XDPNever,
	} {
		var m manifest.Manifest
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"uplink", "fw0"} {
			if got := m.Home(name).When; got != want {
				t.Errorf("%s: device %s has xdp %s, want %s", text, name, got, want)
			}
		}
	}
}

// TestLearn has a driver change an offload of a device that the policy names by another name. By both names, XDP must then cost the device that.
func TestLearn(t *testing.T) {
	m := manifest.Manifest{Homes: map[string]manifest.Home{
		"uplink": {XDP: policy.XDP{When: policy.XDPAlways}, Name: "fw0", Auto: true},
		"fw1":    {XDP: policy.XDP{When: policy.XDPAlways}},
	}}
	changed := datapath.Move{Changed: []string{"rx-gro-hw off"}}
	m.Learn(map[string]datapath.Move{"fw0": changed, "fw1": changed})
	for _, name := range []string{"uplink", "fw0"} {
		if h := m.Home(name); h.When != policy.XDPFlooded || h.Cost == "" {
			t.Errorf("device %s: %+v", name, h)
		}
	}
	if h := m.Home("fw1"); h.When != policy.XDPAlways || h.Cost != "" {
		t.Errorf("the policy says `xdp: always`, but the device has %+v", h)
	}
}
