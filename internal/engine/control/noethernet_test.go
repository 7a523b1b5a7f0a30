// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// TestNoEthernet applies a policy to a device with an Ethernet header and to one without. The program filters both, the second one at tc; netfilter
// filters both, too. status and repair must find no fault. When the device was removed and has returned, a repair must filter it again.
func TestNoEthernet(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	tunnel := "tuntap add tun0 mode tun"
	for _, target := range []plan.Target{control.TargetAuto, plan.TargetNftables} {
		h.ip(tunnel)
		applied, err := h.try("default: pass\nrules: [{name: r, proto: udp, port: 9, then: drop}]", control.ApplyOptions{Target: target, Devices: []string{"fw0", "tun0"}})
		if err != nil {
			t.Fatal(err)
		}
		atTC := target == control.TargetAuto
		if d := applied.Devices; len(d) != 2 || (applied.Target == plan.TargetXDP) != atTC || (d[1].Mode == datapath.TC) != atTC {
			t.Errorf("target %s, devices %v", applied.Target, d)
		}
		whole := func(when string, open, waiting, repaired int) {
			t.Helper()
			s, err := h.Status(t.Context())
			if err != nil || len(s.Open) != open {
				t.Errorf("%s %s: %v, %v", target, when, s.Open, err)
			}
			r, err := h.Repair(t.Context())
			if err != nil || len(r.Devices) != repaired || len(r.Waiting) != waiting {
				t.Errorf("%s %s: the repair: %+v, %v", target, when, r, err)
			}
		}
		back := 0
		if atTC {
			back = 1
		}
		whole("applied", 0, 0, 0)
		h.ip("link del tun0")
		whole("gone", 1, 1, 0)
		h.ip(tunnel)
		whole("there again", back, 0, back)
		whole("repaired", 0, 0, 0)
		h.ip("link del tun0")
	}
}

// TestMacvlanNoted adds a macvlan to a device of the policy. In netfilter, its packets do not have that device as their input device.
func TestMacvlanNoted(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.ip("link add link fw0 name mv0 type macvlan mode bridge")
	applied, err := h.try("default: drop", control.ApplyOptions{Target: plan.TargetIptables})
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(applied.Notes, "\n"); !strings.Contains(notes, "macvlan mv0 takes packets that come by device fw0") {
		t.Errorf("apply says %q", notes)
	}
}
