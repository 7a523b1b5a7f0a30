// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnitsLeaveNoMoment runs the commands of the installed units in the order in which `systemctl` runs them for a reload, a restart, and a stop.
// Packets that the policy drops arrive all the time.
func TestUnitsLeaveNoMoment(t *testing.T) {
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		t.Run(target, func(t *testing.T) {
			if inside(t) {
				unitsLeaveNoMoment(t, target)
			}
		})
	}
}

// unitsLeaveNoMoment runs TestUnitsLeaveNoMoment on one target.
func unitsLeaveNoMoment(t *testing.T, target string) {
	if err := unix.Mount("tmpfs", "/etc/systemd/system", "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount("/etc/systemd/system", unix.MNT_DETACH) })
	t.Setenv("SYSTEMD_OFFLINE", "1")
	w := newWatch(t)
	state := filepath.Join(t.TempDir(), "state")
	mustFloodwall(t, "apply", w.policy, "--boot", "--target", target, "--state", state)
	w.filtered()
	for _, row := range []struct{ unit, verb, keys string }{
		{"floodwall-boot.service", "reload", "ExecReload"},
		{"floodwall-boot.service", "restart", "ExecStop ExecStopPost ExecStart"}, // the first two are a stop
		{"floodwall-device.service", "start", "ExecStart"},
	} {
		passed := w.event(target+": systemctl "+row.verb+" "+row.unit, func() {
			for _, key := range strings.Fields(row.keys) {
				runUnit(t, row.unit, key)
			}
		})
		if passed > 0 {
			t.Errorf("%s: systemctl %s %s let %d packets in", target, row.verb, row.unit, passed)
		}
	}
	mustFloodwall(t, "unload", "--state", state)
	if found, _ := filepath.Glob("/etc/systemd/system/floodwall*"); found != nil {
		t.Errorf("after unload there are %v", found)
	}
}

// TestLateDevice simulates a boot without the policy's device. When the device appears, systemd starts the unit of the device. The unit must restore
// the policy.
func TestLateDevice(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newBootHost(t)
	h.apply("one", "")
	if out, err := h.run("unload", "--keep-boot"); err != nil {
		t.Fatalf("unload: %v\n%s", err, out)
	}
	ip := func(line string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	ip("link set fw0 down")
	ip("link set fw0 name late0")
	if out, err := h.run("apply", "--boot-restore"); err == nil || !strings.Contains(out, "none of the policy's devices is there yet: fw0") {
		t.Errorf("without the device: %v\n%s", err, out)
	}
	ip("link set late0 name fw0")
	runUnit(t, "floodwall-device.service", "ExecStart")
	h.wantVerdicts("when the device is there", map[string]string{"udp 198.51.100.1:9 > 192.0.2.1:1": "drop one"})
	if out, err := h.run("status"); err != nil {
		t.Errorf("status: %v\n%s", err, out)
	}
}

// runUnit runs the commands that a unit has under a key, as systemd does. No path in the test needs quotes.
func runUnit(t *testing.T, unit, key string) {
	t.Helper()
	text, err := os.ReadFile("/etc/systemd/system/" + unit)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), key+"=")
		if !ok {
			continue
		}
		words := strings.Fields(strings.TrimPrefix(command, "-"))
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v\n%s", unit, command, err, out)
		}
	}
}
