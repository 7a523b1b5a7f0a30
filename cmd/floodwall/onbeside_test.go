// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"syscall"
	"testing"
)

// TestOnBeside applies another policy during the trial of on, with and without a trial of its own, beside a daemon. At its end on must leave that policy as it is,
// also if on is told to keep its own, and remove its own file.
func TestOnBeside(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	h.serve("0.0.0.0:22")
	startDaemon(t)
	file := t.TempDir() + "/other.yaml"
	writeFile(t, file, strings.Replace(standingPolicy, "tcp/25", "tcp/26", 1))
	for _, other := range [][]string{{"apply", file}, {"apply", file, "--confirm", "5m"}} {
		for _, end := range []func(*onRun){func(r *onRun) { r.cmd.Process.Signal(syscall.SIGINT) }, func(r *onRun) { r.enters("") }} {
			r := h.start("--confirm", "5m")
			r.says(firstQuestion)
			r.enters("y")
			r.says(secondQuestion)
			mustFloodwall(t, other...)
			end(r)
			<-r.ended
			if out := r.said.String(); r.cmd.ProcessState.ExitCode() == 0 || !strings.Contains(out, "another command has applied") || !strings.Contains(out, "policy.yaml is removed again") {
				t.Errorf("%v beside on:\n%s", other, out)
			}
			h.wants("after on", map[string]string{strangerTo("26"): "pass", strangerTo("80"): "drop default"})
			if status := mustFloodwall(t, "status"); strings.Contains(status, "trial") != (len(other) > 2) {
				t.Errorf("%v beside on:\n%s", other, status)
			}
			mustFloodwall(t, "unload")
		}
	}
}

// TestOnTwice runs on in two sessions at once: the second one replaces the trial of the first. Whatever ends which, only the second one can keep the
// policy. If it does not, nothing is filtered, as before both.
func TestOnTwice(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newOnHost(t)
	h.serve("0.0.0.0:22")
	interrupt := func(r *onRun) { r.cmd.Process.Signal(syscall.SIGINT) }
	enter := func(r *onRun) { r.enters("") }
	for name, way := range map[string]struct {
		first, second func(*onRun)
		secondEnds    bool // before the first one
		kept          bool
	}{
		"Ctrl-C, then Enter in the second":  {interrupt, enter, false, true},
		"Enter in the second, then Ctrl-C":  {interrupt, enter, true, true},
		"Enter, then Ctrl-C in the second":  {enter, interrupt, false, false},
		"Ctrl-C in the second, then Enter":  {enter, interrupt, true, false},
		"Ctrl-C in both":                    {interrupt, interrupt, false, false},
		"Enter in the second, then in both": {enter, enter, true, true},
	} {
		var runs [2]*onRun
		for i := range runs {
			runs[i] = h.start("--confirm", "5m")
			runs[i].says(firstQuestion)
			runs[i].enters("y")
			runs[i].says(secondQuestion)
		}
		ends := []func(){func() { way.first(runs[0]); <-runs[0].ended }, func() { way.second(runs[1]); <-runs[1].ended }}
		if way.secondEnds {
			ends[0], ends[1] = ends[1], ends[0]
		}
		ends[0]()
		ends[1]()
		want := "nothing is loaded"
		if way.kept {
			want = "drop default"
		}
		if got := verdict(t, strangerTo("25")); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nfirst:\n%s\nsecond:\n%s", name, got, runs[0].said, runs[1].said)
		}
		if out, err := floodwall("status"); err == nil && strings.Contains(out, "trial") {
			t.Errorf("%s: a trial goes on:\n%s", name, out)
		}
		if code := runs[1].cmd.ProcessState.ExitCode(); (code == 0) != way.kept {
			t.Errorf("%s: the second one ends with status %d:\n%s", name, code, runs[1].said)
		}
		floodwall("off")
		sh(t, "rm -rf /etc/floodwall")
	}
}
