// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/test/suggesttest"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestRealAttacks sends real attacks and legitimate packets to a host with a daemon. The daemon and `suggest --live` must find rules. In the kernel,
// these rules must drop at least 95% of the attack's packets. They may drop at most 0.1% of legitimate packets that the search did not use. Against
// SYN floods the daemon must advise cookies. The short form of the test has one attack, and generated legitimate packets.
func TestRealAttacks(t *testing.T) {
	if !inside(t) {
		return
	}
	r := testutil.Random(t)
	attacks, baseline, judged := suggesttest.Attacks(t, "../..", r), usualFrames(r, 6000), usualFrames(r, 6000)
	if testutil.Long() {
		baseline, judged = suggesttest.Recorded(t)
		baseline, judged = suggesttest.OnWire(baseline), suggesttest.OnWire(judged)
	} else {
		attacks = attacks[r.IntN(len(attacks)):][:1]
	}
	for _, a := range attacks {
		realAttack(t, a, baseline, judged)
	}
}

func realAttack(t *testing.T, a suggesttest.Attack, baseline, judged [][]byte) {
	state, dir := t.TempDir(), t.TempDir()
	good, file := filepath.Join(dir, "good.pcapng"), filepath.Join(dir, "policy.yaml")
	baselineOf(t, good, baseline)
	usualRate(t, state, 300)
	writeFile(t, file, "devices: [fw0]\ndefault: pass\nchecks: off\ndaemon: {sample: 1/10}\ndetect: {baseline: "+good+", least: 1000/s, quiet: 2s}\n")
	mustFloodwall(t, "apply", file, "--state", state)
	h := startUnitDaemon(t)
	var frames, only [][]byte
	for _, p := range a.Packets {
		frames = append(frames, p.Frame)
		if s := suggest.NewSample(p); a.Is(&s.Packet) {
			only = append(only, p.Frame)
		}
	}
	frames, only = suggesttest.OnWire(frames), suggesttest.OnWire(only)
	only = only[:min(len(only), testutil.Scaled(4000, len(only)))]
	cookies := a.Kind == "SYN flood" // the daemon advises cookies and suggests no rule, because the clients' SYNs can be identical
	usual := play(t, 300, baseline)
	began := time.Now()
	flood := play(t, 4000, frames)
	live := make(chan string, 1)
	go func() {
		out, err := floodwall("suggest", file, "--live", "--baseline", good, "--json")
		live <- out
		if err != nil {
			t.Errorf("%s: suggest --live: %v\n%s", a.Name, err, out)
		}
	}()
	var report attack.Report
	waitFor(t, "a suggestion against "+a.Name, func() bool {
		if list := h.attacksOf(); len(list.Attacks) > 0 {
			report = attack.Report{}
			if err := json.Unmarshal([]byte(h.must(http.StatusOK, readSocket, "/v1/attacks/"+list.Attacks[0].ID).body), &report); err != nil {
				t.Fatal(err)
			}
		}
		return report.Suggestion != nil || cookies && strings.Contains(strings.Join(report.Advice, " "), "`syn: protect`")
	})
	took := report.Updated.Sub(began)
	var found operate.Suggestion
	if err := json.Unmarshal([]byte(<-live), &found); err != nil {
		t.Fatal(err)
	}
	flood()
	usual()
	h.kill()
	t.Logf("%s: %v, found %.1f s after its first packet", a.Name, report.Vectors, took.Seconds())
	if !slices.ContainsFunc(report.Vectors, func(v attack.Vector) bool { return v.Name == a.Kind }) {
		t.Errorf("%s: it is named %v, not %s", a.Name, report.Vectors, a.Kind)
	}
	by := map[string][]suggest.Rule{"suggest --live": found.Rules}
	if s := report.Suggestion; s != nil {
		if by["detect"] = s.Rules; cookies {
			t.Errorf("%s: detect suggests %+v", a.Name, s.Rules)
		}
	}
	for by, rules := range by {
		dropped, harmed := droppedBy(t, rules, only), droppedBy(t, rules, judged)
		t.Logf("%s: rules of %s drop %.2f%% of %d packets of the attack, %.3f%% of %d legitimate ones", a.Name, by, 100*dropped, len(only), 100*harmed, len(judged))
		for _, rule := range rules {
			t.Log(rule.Text)
		}
		if dropped < 0.95 || harmed > 0.001 {
			t.Errorf("%s: want at least 95%% of the attack and at most 0.1%% of the legitimate packets", a.Name)
		}
	}
	mustFloodwall(t, "unload")
}

// usualFrames returns n legitimate packets.
func usualFrames(r *rand.Rand, n int) (frames [][]byte) {
	for range n {
		frames = append(frames, suggesttest.Frame(suggesttest.Legitimate(r)))
	}
	return frames
}

// baselineOf writes frames to a capture file.
func baselineOf(t *testing.T, file string, frames [][]byte) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := sample.NewFileWriter(f, 256, "fw0")
	for _, frame := range frames {
		if err == nil {
			err = w.Write(sample.Sample{Time: time.Now(), Device: "fw0", Length: len(frame), Frame: frame[:min(len(frame), 256)]}, "")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// usualRate writes the usual packet rate to a state directory, as if an earlier daemon had learned it.
func usualRate(t *testing.T, state string, packets int) {
	t.Helper()
	kept := filepath.Join(state, "attacks")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(kept, "usual.json"), fmt.Sprintf(`{"seconds": [%s%d]}`, strings.Repeat(fmt.Sprintf("%d,", packets), 19), packets))
}

// play sends frames to fw0 repeatedly at a rate in packets per second, until the test ends or the caller calls stop.
func play(t *testing.T, rate int, frames [][]byte) (stop func()) {
	t.Helper()
	const pause = 10 * time.Millisecond
	each, at := rate/100, 0
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- testutil.SendFrames("fw1", func() [][]byte {
			select {
			case <-done:
				return nil
			case <-time.After(pause):
			}
			if at+each > len(frames) {
				at = 0
			}
			at += each
			return frames[at-each : at]
		})
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		close(done)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// droppedBy adds suggested rules to the kernel temporarily, and returns the share of frames that they drop.
func droppedBy(t *testing.T, rules []suggest.Rule, frames [][]byte) float64 {
	t.Helper()
	var names []string
	for i, r := range rules {
		name := fmt.Sprintf("tried-%d", i)
		mustFloodwall(t, "temporary", "add", strings.Replace(r.Text, ", observe: true", "", 1), "--for", "10m", "--name", name)
		names = append(names, name)
	}
	counted := func() (all, dropped uint64) {
		var s control.Status
		if err := json.Unmarshal([]byte(mustFloodwall(t, "status", "--json")), &s); err != nil {
			t.Fatal(err)
		}
		for _, r := range s.Rules {
			dropped += r.Packets
		}
		all = dropped + s.Default.Packets
		for _, c := range s.Checks {
			all += c.Packets
		}
		return all, dropped
	}
	before, _ := counted()
	left := frames
	err := testutil.SendFrames("fw1", func() [][]byte {
		now := left[:min(len(left), 64)]
		left = left[len(now):]
		time.Sleep(time.Millisecond)
		return now
	})
	if err != nil {
		t.Fatal(err)
	}
	dropped := uint64(0)
	waitFor(t, "all packets to be counted", func() bool {
		var all uint64
		all, dropped = counted()
		return all-before >= uint64(len(frames))
	})
	mustFloodwall(t, append([]string{"temporary", "remove"}, names...)...)
	return float64(dropped) / float64(len(frames))
}
