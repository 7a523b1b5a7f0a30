// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"testing"
	"time"
)

// TestOutlook follows a run whose experiments take twice as long as usual.
func TestOutlook(t *testing.T) {
	o := Options{Quick: true}.WithDefaults()
	experiments := []string{"drop", "cost", "program"}
	usual := func(name string) time.Duration { return usualTime[name].quick }
	l, now := newOutlook(experiments, o), time.Unix(0, 0)
	check := func(known, want time.Duration) {
		t.Helper()
		if got := l.left(now, known); got != want {
			t.Errorf("%s: %v left, want %v", l, got, want)
		}
	}
	l.begin(now)
	check(0, usual("drop")+usual("cost")+usual("program"))
	now = now.Add(usual("drop"))
	check(0, usual("cost")+usual("program"))
	check(time.Minute, time.Minute+usual("cost")+usual("program"))
	now = now.Add(usual("drop"))
	l.begin(now)
	check(0, 2*usual("cost")+2*usual("program"))
	o.Rounds *= 3
	l = newOutlook(experiments[2:], o)
	l.begin(now)
	check(0, 3*usual("program"))
}

func TestProgressText(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "1s left", 59 * time.Second: "59s left", 90 * time.Second: "2m left", 3 * time.Hour: "180m left"} {
		if got := leftText(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := cut("drop: größer", 8); got != "drop: gr" {
		t.Errorf("cut to %q", got)
	}
}
