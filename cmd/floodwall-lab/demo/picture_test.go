// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestPicture draws a whole demonstration in terminals of several sizes.
func TestPicture(t *testing.T) {
	for _, size := range []struct{ width, height int }{{80, 24}, {60, 20}, {200, 60}, {60, 5}} {
		t.Run(fmt.Sprintf("%dx%d", size.width, size.height), func(t *testing.T) {
			p := newPicture(true, size.width)
			p.height = size.height
			p.policy = fmt.Sprintf(policyText, listFile)
			p.note, p.page = "measuring this machine", "http://127.0.0.1:9810/"
			checkPicture(t, p, "http://127.0.0.1:9810/", "no requests yet", "policy.yaml, not applied yet")
			for number := range phases {
				p.begin(number)
				for range 200 {
					p.add(busyMoment(number))
				}
			}
			checkPicture(t, p, "12,000 answered", "300/s", "1.20 Mpps sent", "reflector-source", "63%")
		})
	}
}

// busyMoment returns a moment with large figures.
func busyMoment(number int) Moment {
	m := Moment{Phase: number, Interval: 200 * time.Millisecond, OK: 60, Asked: 300, Slowest: time.Second}
	m.Traffic = Traffic{Sent: 1.2e6, Received: 1.1e6, Lost: 1e5, Dropped: 1.1e6, Busy: 0.63}
	for _, reason := range []string{"listed", "default", "tcp-flags", "reflector-source"} {
		m.Drops = append(m.Drops, Drop{reason, 123_456_789})
	}
	return m
}

// checkPicture checks that the picture fits, and that it has the texts if there is space for them.
func checkPicture(t *testing.T, p *picture, texts ...string) {
	t.Helper()
	view := p.View()
	lines := strings.Split(strings.TrimSuffix(view, "\n"), "\n")
	if len(lines) >= p.height {
		t.Errorf("%d lines in a terminal of %d:\n%s", len(lines), p.height, view)
	}
	for _, line := range lines {
		if n := columns(line); n > p.width {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	for _, text := range texts {
		if p.height >= 20 && !strings.Contains(view, text) {
			t.Errorf("no %q in\n%s", text, view)
		}
	}
}
