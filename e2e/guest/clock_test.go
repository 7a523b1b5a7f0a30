// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// clockPolicy returns a policy with a ban set, and a limit that is not refilled during the test. A service has the version in its name.
func clockPolicy(version int) string {
	return fmt.Sprintf(`devices: [eth0]
default: drop
sets:
  bans: {dynamic: true, max: 1000, timeout: 1h}
rules:
  - {name: listed, from: $bans, then: drop}
  - {name: few, from: 203.0.113.5, port: udp/7000, over: {rate: 1/day, burst: 2}, then: drop}
services:
  - {name: open, port: udp/7000}
  - {name: v%d, port: udp/5353}
`, version)
}

// TestClockSteps sets the machine's clock forward and back by days. Bans, trials and limits must not change.
func TestClockSteps(t *testing.T) {
	if !long {
		return
	}
	h := newHost(t, nil)
	for n := 1; n <= 2; n++ {
		h.Write(fmt.Sprintf("/tmp/v%d.yaml", n), clockPolicy(n))
	}
	for _, target := range []string{"xdp", "nftables"} {
		h.Must("floodwall apply /tmp/v1.yaml --target " + target)
		h.served()
		h.Must("floodwall block 203.0.113.99 --for 50m")
		text := "few, " + target
		h.few(text)
		for _, step := range []string{"+2 days", "-4 days"} {
			h.Must("date -s '" + step + "'")
			h.few(text)
			h.banned(target + ", clock " + step)
		}

		h.Must("floodwall apply /tmp/v2.yaml --confirm 40m --target " + target)
		for _, step := range []string{"+2 days", "-4 days"} {
			h.Must("date -s '" + step + "'")
			// If the steps of an apply are slow, the trial gets additional time, at most minutes.
			if s := h.status(); s.Trial == nil || s.Trial.Left <= 0 || s.Trial.Left > 3600 || h.runs() != 2 {
				t.Errorf("%s: during the trial, clock %s: version %d, trial %+v", target, step, h.runs(), s.Trial)
			}
			h.banned(target + ", during the trial, clock " + step)
		}
		h.Must("floodwall rollback")

		h.Must("floodwall apply /tmp/v2.yaml --confirm 30s --target " + target)
		began := time.Now()
		h.Must("date -s '-1 day'")
		for h.runs() != 1 {
			if time.Since(began) > 5*time.Minute {
				t.Fatalf("%s: the clock was set back, and the trial has not ended", target)
			}
		}
		t.Logf("%s: the trial of 30 s ended at most %v after it began", target, time.Since(began).Round(time.Second))
		h.Must("floodwall unload")
	}
}

// few sends ten packets with a text. The limit passes two packets in all. So two may pass at the first call with a text, and none at later calls.
func (h *host) few(text string) {
	h.Helper()
	f := frameFrom(h, "203.0.113.5", openPort, text)
	for range 10 {
		h.Wire(0).Send(f)
		time.Sleep(10 * time.Millisecond)
	}
	h.served()
	if n := h.Received()[fmt.Sprintf("udp/%d %s", openPort, text)]; n == 0 || n > 2 {
		h.Errorf("%s: %d packets passed a limit of 2 a day", text, n)
	}
}

// banned checks that an address is still blocked.
func (h *host) banned(when string) {
	h.Helper()
	if out := h.explain(bannedPacket); !strings.Contains(out, "listed") {
		h.Errorf("%s: the ban does not hold: %s", when, out)
	}
	if out := h.Must("floodwall blocked"); !strings.Contains(out, "203.0.113.99") {
		h.Errorf("%s: blocked: %s", when, out)
	}
}
