// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
)

// TestPeakAtFirst reports an attack before the counters of its first second are read. Its peak must be the rate by samples. Higher counters must
// raise it. Lower counters, of a second that began before the attack, must not lower it.
func TestPeakAtFirst(t *testing.T) {
	c := newCollecting(Report{ID: "20260101-000000", Started: time.Now()}, nil)
	if text := c.report.Headline(); strings.Contains(text, "peak") {
		t.Errorf("without a figure: %s", text)
	}
	c.captured = []sample.Sample{{Length: 400}, {Length: 600}}
	c.join(&load{name: "this host"}, Attack, Facts{At: "this host", Packets: 3000, Usual: 30})
	if text := c.report.Headline(); !strings.Contains(text, "peak 3000 packets/s and 12.0 Mbit/s") {
		t.Errorf("of samples: %s", text)
	}
	for _, of := range []struct{ counted, want float64 }{{1000, 3000}, {5000, 5000}} {
		c.report.add(&operate.Top{Seconds: 1, Passed: operate.Rate{Packets: of.counted, Bits: 1}}, time.Now())
		if c.report.Peak.Packets != of.want {
			t.Errorf("with %.0f counted, the peak is %.0f, want %.0f", of.counted, c.report.Peak.Packets, of.want)
		}
	}
}
