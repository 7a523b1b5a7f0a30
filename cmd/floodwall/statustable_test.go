// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/engine/control"
)

// TestOf checks the table of a status. It must always have the rules of the policy. It must have built-in rules and checks only if they have counted
// packets. On request it must have all of them.
func TestOf(t *testing.T) {
	t.Parallel()
	s := &control.Status{
		Devices: []control.DeviceStatus{{Name: "eth0", Stage: "xdp", Mode: "driver"}, {Name: "eth1", Stage: "raw"}},
		Rules: []control.RuleStatus{
			{Name: "banned", Stage: "xdp", Verdict: "drop", Packets: 1234567, Bytes: 64000, Line: 8, Merged: 3},
			{Name: "tried", Stage: "xdp", Verdict: "drop", Line: 9, Observe: true},
			{Name: "moved", Stage: "xdp", Verdict: "pass", Packets: 7, Uncounted: true, Line: 10},
			{Name: "essential", Stage: "xdp", Verdict: "pass"},
		},
		Default: control.RuleStatus{Name: "default", Stage: "xdp", Verdict: "drop"},
		NotIP:   control.RuleStatus{Name: "not-ip", Stage: "xdp", Verdict: "pass"},
		Checks:  []control.RuleStatus{{Name: "bad-flags", Stage: "xdp", Verdict: "drop"}, {Name: "same", Stage: "xdp", Verdict: "drop", Packets: 1}},
		Sets:    []control.SetStatus{{Name: "bans", Kind: "dynamic", Entries: 999, Capacity: 1000}, {Name: "list", Kind: "static", Entries: 5}},
	}
	text := func(all bool) string {
		var lines []string
		for _, table := range StatusTables(s, all) {
			for _, line := range table.Lines() {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
		}
		return "\n" + strings.Join(lines, "\n") + "\n"
	}
	few, all := text(false), text(true)
	for _, line := range []string{
		"eth0 xdp driver", "eth1 raw -", "banned (and 2 more) xdp drop 1,234,567 64.0 kB", "tried xdp (drop) 0 0 B", "moved xdp pass - -",
		"default xdp drop 0 0 B", "same xdp drop 1 0 B", "bans dynamic 999 1,000 99%", "list static 5 0 -",
	} {
		if !strings.Contains(few, "\n"+line+"\n") || !strings.Contains(all, "\n"+line+"\n") {
			t.Errorf("no line %q in%s", line, few)
		}
	}
	for _, line := range []string{"essential xdp pass 0 0 B", "not-ip xdp pass 0 0 B", "bad-flags xdp drop 0 0 B"} {
		if strings.Contains(few, line) || !strings.Contains(all, "\n"+line+"\n") {
			t.Errorf("%q stands in%sor is missing in%s", line, few, all)
		}
	}
}
