package control_test

import (
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
)

// TestNoEthernet applies a policy to a device with an Ethernet header and one without. Netfilter filters both, apply says why, and status and
// repair find all as it should be, also after the device went and came.
func TestNoEthernet(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	tunnel := "tuntap add tun0 mode tun"
	h.ip(tunnel)
	applied, err := h.try("default: pass\nrules: [{name: r, proto: udp, port: 9, then: drop}]", control.ApplyOptions{Devices: []string{"fw0", "tun0"}})
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(applied.Notes, "\n"); applied.Target != plan.TargetNftables || !strings.Contains(notes, "device tun0 keeps all devices from XDP") {
		t.Errorf("target %s, notes %q", applied.Target, notes)
	}
	whole := func(when string, gone int) {
		t.Helper()
		s, err := h.Status(t.Context())
		if err != nil || len(s.Open) != gone {
			t.Errorf("%s: %v, %v", when, s.Open, err)
		}
		r, err := h.Repair(t.Context())
		if err != nil || r.Any() || len(r.Waiting) != gone {
			t.Errorf("%s: the repair: %+v, %v", when, r, err)
		}
	}
	whole("applied", 0)
	h.ip("link del tun0")
	whole("gone", 1)
	h.ip(tunnel)
	whole("there again", 0)
}

// TestMacvlanNoted has a macvlan on a device of the policy: netfilter does not know its packets by that device.
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
