// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestLearningIsTold uses `auto` on a host that has learned nothing yet, and on a target without samples. The status, the API and the metrics must
// say what `auto` still needs.
func TestLearningIsTold(t *testing.T) {
	if !inside(t) {
		return
	}
	for target, want := range map[string]string{"xdp": "seconds were seen", "nftables": "target nftables takes no samples"} {
		state, file := t.TempDir(), filepath.Join(t.TempDir(), "policy.yaml")
		writeFile(t, file, "devices: [fw0]\ndefault: pass\nchecks: off\ndetect: {baseline: learn, auto: {}}\n")
		mustFloodwall(t, "apply", file, "--target", target, "--state", state)
		h := startUnitDaemon(t, "--state", state)
		waitFor(t, "the status to say what is lacking on "+target, func() bool {
			return strings.Contains(mustFloodwall(t, "status", "--state", state), "detect: `auto` adds no rule yet: ") && strings.Contains(mustFloodwall(t, "status", "--state", state), want)
		})
		if l := h.attacksOf().Learning; l == nil || !strings.Contains(l.Lacks, want) || l.Needed < 3800 {
			t.Errorf("%s: the API says %+v", target, l)
		}
		if figures := h.must(200, readSocket, "/metrics").body; !strings.Contains(figures, "floodwall_detect_auto_ready 0") || !strings.Contains(figures, "floodwall_detect_needed_samples 38") {
			t.Errorf("%s: metrics lack what is needed", target)
		}
		h.kill()
		mustFloodwall(t, "unload", "--state", state)
	}
}
