// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestOnOff turns the firewall on twice and off twice, with a daemon, and on again. The second on must use the policy of the first one, also after a
// change by the operator, and bring back the bans.
func TestOnOff(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	h.serve("0.0.0.0:22", "0.0.0.0:80")
	if out := mustFloodwall(t, "off"); out != "nothing was loaded\n" {
		t.Errorf("off before on: %s", out)
	}
	out := h.done("--confirm", "5m")
	if asked := h.systemctl(); !strings.Contains(asked, "reenable floodwall-boot.service floodwall-device.service floodwall.service\nstart floodwall.service\n") {
		t.Errorf("systemctl:\n%s", asked)
	}
	if _, err := os.Stat("/etc/systemd/system/floodwall-boot.service"); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(operate.UsualPolicy)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "default: drop", "default: drop # by me", 1)
	writeFile(t, operate.UsualPolicy, changed)
	mustFloodwall(t, "block", "198.51.100.77")
	daemon := startDaemon(t)
	if again := h.done(); !strings.Contains(again, "it replaces generation 1 of /etc/floodwall/policy.yaml") || strings.Count(h.systemctl(), "\nstart ") != 1 {
		t.Errorf("the second on, after\n%s:\n%s\n%s", out, again, h.systemctl())
	}
	for i, want := range []string{
		"unloaded: nothing is filtered any more\ndisabled: systemd loads nothing at the next boot, and runs no daemon\na daemon that is not of systemd runs on, and waits for a policy\n",
		"nothing was loaded\n",
	} {
		if out := mustFloodwall(t, "off"); !strings.HasPrefix(out, want+"") || !strings.HasSuffix(out, operate.UsualPolicy+" stays: `floodwall on` brings it back\n") {
			t.Errorf("off, time %d:\n%s", i+1, out)
		}
		if i == 0 {
			daemon.kill()
		}
		if found := testutil.LeftoverPins(); found != nil {
			t.Errorf("off leaves %v", found)
		}
	}
	if !strings.Contains(h.systemctl(), "disable --now floodwall.service\n") {
		t.Errorf("systemctl:\n%s", h.systemctl())
	}
	if _, err := os.Stat("/etc/systemd/system/floodwall-boot.service"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unit after off: %v", err)
	}
	r := h.start("--yes")
	r.ends(0)
	h.wants("on after off", map[string]string{
		strangerTo("80"): "pass", strangerTo("8080"): "drop default", "tcp 198.51.100.77:4000 > 192.0.2.1:80 S": "drop banned",
	})
	if again, err := os.ReadFile(operate.UsualPolicy); err != nil || string(again) != changed {
		t.Errorf("the policy has changed: %v\n%s", err, again)
	}
	if strings.Contains(r.said.String(), firstQuestion) || strings.Contains(r.said.String(), secondQuestion) {
		t.Errorf("on --yes asks:\n%s", r.said)
	}
}

// TestOffUnits lets systemctl fail in off. Off must say that nothing is filtered, and that the units remain.
func TestOffUnits(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	r := h.start("--yes")
	r.ends(0)
	working, err := os.ReadFile(h.script)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, h.script, "#!/bin/sh\necho busy; exit 1\n")
	out, err := floodwall("off")
	status := exitCode(err)
	if status != 1 || !strings.Contains(out, "unloaded: nothing is filtered any more\n") || !strings.Contains(out, "error: the units of systemd remain: ") {
		t.Errorf("off, while systemctl fails, with status %d:\n%s", status, out)
	}
	writeFile(t, h.script, string(working))
	if out := mustFloodwall(t, "off"); !strings.HasPrefix(out, "nothing was loaded\n") {
		t.Errorf("the second off:\n%s", out)
	}
}
