// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/test/testutil"
)

// followed is a host under a flood. Its daemon shows all data of the loaded program while other processes replace the program.
type followed struct {
	*apiHost
	state, file, db string
	offenders       int // the number of senders that have exceeded the limit
	capture         *capturer
}

// capturer is a running `floodwall capture` of the samples of one rule.
type capturer struct {
	*exec.Cmd
	file  string
	said  *lines
	ended chan struct{} // closed when the process has ended
}

// TestDaemonFollows replaces the program under a running daemon in every way: applies, trials, a rollback, an exchange of sets, an unload. After each
// replacement, every reader of the program must continue: top, the stream of samples, the report of the attack, automatic rules, metrics, a capture,
// bans of a limit. The daemon is never restarted. A capture must end when it finds nothing loaded. It must continue when the next policy is already
// there, also if that has the number of the one before.
func TestDaemonFollows(t *testing.T) {
	if !inside(t) {
		return
	}
	f := newFollowed(t)
	apply := func(args ...string) func() {
		return func() { mustFloodwall(t, append([]string{"apply", f.file, "--state", f.state}, args...)...) }
	}
	floodwall := func(command string) { mustFloodwall(t, command, "--state", f.state) }
	for _, change := range []struct {
		name string
		make func()
	}{
		{"the first apply", func() {}},
		{"a second apply", apply()},
		{"a trial with confirm", func() { apply("--confirm", "10m")(); f.sees("a trial"); floodwall("confirm") }},
		{"a rollback", func() { floodwall("rollback") }},
		{"a trial that nobody confirms", func() {
			apply("--confirm", "3s")()
			waitFor(t, "the end of the trial", func() bool { return strings.Contains(f.said.String(), "ended unconfirmed") })
		}},
		{"an exchange of sets", func() {
			f.country("FR", "203.0.112.0/24")
			waitFor(t, "the exchange", func() bool { return strings.Contains(f.said.String(), `set \"far\" is exchanged`) })
		}},
		{"an apply after an unload", func() { // the numbers of generations begin again
			floodwall("unload")
			f.captureEnds() // before the apply: only one capture at a time may read the samples
			apply()()
			f.startCapture()
		}},
		{"an unload and an apply at once", func() { // the capture runs again only when both are done
			resume := f.capture.pause(t)
			floodwall("unload")
			apply()()
			resume()
		}},
	} {
		change.make()
		f.sees(change.name)
	}
	f.stops()
}

// stops stops the daemon by SIGSTOP. Commands that inspect the kernel must then report that samples are not read. When the daemon runs again, they
// must not report this any more.
func (f *followed) stops() {
	f.Helper()
	const warning = "samples of the traffic are not read"
	f.daemon.Process.Signal(unix.SIGSTOP)
	waitFor(f.T, "the warning of status", func() bool { return strings.Contains(mustFloodwall(f.T, "status"), "warning: "+warning) })
	out, _ := floodwall("doctor")
	if text := strings.Join(strings.Fields(out), " "); !strings.Contains(text, warning) || !strings.Contains(text, "nobody sees an attack") {
		f.Errorf("doctor says nothing of samples:\n%s", out)
	}
	f.daemon.Process.Signal(unix.SIGCONT)
	waitFor(f.T, "the end of the warning", func() bool { return !strings.Contains(mustFloodwall(f.T, "status"), warning) })
}

func newFollowed(t *testing.T) *followed {
	t.Helper()
	f := &followed{state: t.TempDir(), db: filepath.Join(t.TempDir(), "places.mmdb")}
	f.file = automatic(t, f.state, "{collateral: 0.5%, max: 1}")
	text, err := os.ReadFile(f.file)
	if err != nil {
		t.Fatal(err)
	}
	rules := "sets: {bans: {dynamic: true, max: 1000, timeout: 1h}, far: {country: [FR], db: " + f.db + "}}\nrules:\n" +
		"  - {name: far, from: $far, then: drop}\n" +
		"  - {name: greedy, proto: udp, port: 8, over: {rate: 1/s, per: from, ban: {set: bans, for: 10m, trust: forgeable}}, then: drop}\n"
	changed := strings.Replace(strings.Replace(string(text), "rules:\n", rules, 1), "port: 7, then: drop", "port: 7, then: drop, sample: 1/1", 1)
	f.apiHost = &apiHost{T: t}
	f.country("FR", "203.0.111.0/24")
	writeFile(t, f.file, changed)
	mustFloodwall(t, "apply", f.file, "--state", f.state)
	received(t)
	sendMeanwhile(t, "fw1", 75*time.Millisecond, legitimate...)
	f.apiHost = startUnitDaemon(t, "--state", f.state, "--json")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon said:\n%s", f.said)
		}
	})
	f.startCapture()
	sendMeanwhile(t, "fw1", 10*time.Millisecond, ntpFlood()...)
	waitFor(t, "the attack", func() bool { return len(f.attacksOf().Attacks) > 0 })
	return f
}

// startCapture captures the samples of the rule.
func (f *followed) startCapture() {
	f.Helper()
	file := filepath.Join(f.TempDir(), "port7.pcapng")
	c := &capturer{exec.Command("floodwall", "capture", "--rule", "port7", "-w", file), file, new(lines), make(chan struct{})}
	c.Stdout, c.Stderr = c.said, c.said
	if err := testutil.Start(c.Cmd); err != nil {
		f.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		c.Wait()
	}()
	f.Cleanup(func() {
		c.Process.Kill()
		<-c.ended
		if f.Failed() {
			f.Logf("the capture to %s said:\n%s", c.file, c.said)
		}
	})
	f.capture = c
}

// captureEnds waits for the end of the capture. The capture must end by itself and without an error, because nothing is loaded.
func (f *followed) captureEnds() {
	f.Helper()
	c := f.capture
	waitFor(f.T, "the end of the capture", func() bool {
		select {
		case <-c.ended:
			return true
		default:
			return false
		}
	})
	if said := c.said.String(); !c.ProcessState.Success() || !strings.Contains(said, "the capture ends: nothing is loaded") {
		f.Errorf("after an unload the capture ends with %v:\n%s", c.ProcessState, said)
	}
}

// pause stops the process, and returns when it has stopped. resume continues it.
func (c *capturer) pause(t *testing.T) (resume func()) {
	t.Helper()
	c.Process.Signal(unix.SIGSTOP)
	if err := unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatalf("the capture does not stop: %v", err)
	}
	return func() { c.Process.Signal(unix.SIGCONT) }
}

// country writes the country database that the live set uses.
func (f *followed) country(country, prefix string) {
	f.Helper()
	if err := testutil.Write(f.db, testutil.Network{Prefix: prefix, Country: country}); err != nil {
		f.Fatal(err)
	}
}

// sees waits until each feature has processed packets that were sent after the call.
func (f *followed) sees(when string) {
	t := f.T
	t.Helper()
	began := time.Now()
	f.offenders++
	offender := fmt.Sprintf("203.0.113.%d", 100+f.offenders)
	stop := sendMeanwhile(t, "fw1", 20*time.Millisecond, "udp "+offender+":9 > 192.0.2.1:8")
	defer stop()
	for _, feature := range []struct {
		name string
		is   func() bool
	}{
		{"top", func() bool {
			var top operate.Top
			f.read("/v1/top?for=1s", &top)
			return top.Samples != nil && top.Samples.Verdicts["drop"] > 0 && top.Samples.Verdicts["pass"] > 0
		}},
		{"samples with their reasons", func() bool { r := f.reasons(); return r["port7"] > 0 && r["default"] > 0 && r["unknown"] == 0 }},
		{"the report", grows(f.reported)},
		{"an automatic rule that drops", func() bool {
			list := temporaryRules(t)
			return len(list) == 1 && !list[0].Observe && list[0].Packets > 0
		}},
		{"samples of the automatic rule", func() bool { r := f.reasons(); return r["auto-1"] > 0 && r["unknown"] == 0 }},
		{"metrics", grows(f.counted)},
		{"the capture", func() bool { return f.capture.since(t, began) }},
		{"bans of a limit", func() bool { return strings.Contains(mustFloodwall(t, "blocked", "--state", f.state), offender) }},
	} {
		if strings.Contains(feature.name, "automatic") && (when == "a trial" || strings.Contains(when, "unload")) {
			continue // during a trial temporary rules do not change, and unload removes them
		}
		if !testutil.Eventually(3*time.Minute, feature.is) { // the same limit as in waitFor
			t.Errorf("after %s: nothing of now in %s", when, feature.name)
		}
	}
	if out := mustFloodwall(t, "status"); strings.Contains(out, "not read") {
		t.Errorf("after %s: status warns of samples:\n%s", when, out)
	}
	t.Logf("%-30s all is seen after %.1f s", when, time.Since(began).Seconds())
}

// read requests a path from the daemon, and decodes the answer.
func (f *followed) read(path string, to any) {
	f.Helper()
	if err := json.Unmarshal([]byte(f.must(http.StatusOK, readSocket, path).body), to); err != nil {
		f.Fatal(err)
	}
}

// grows returns a function that reports whether a value has grown since the previous call. Its first call returns false.
func grows(figure func() float64) func() bool {
	last := math.Inf(1)
	return func() bool {
		before := last
		last = figure()
		return last > before
	}
}

// reported returns the number of samples in the report of the attack.
func (f *followed) reported() float64 {
	f.Helper()
	var r attack.Report
	f.read("/v1/attacks/"+f.attacksOf().Attacks[0].ID, &r)
	if r.Samples == nil {
		return 0
	}
	return float64(r.Samples.Packets)
}

// reasons takes samples for half a second, and returns the number of samples for each reason.
func (f *followed) reasons() map[string]int {
	f.Helper()
	found := map[string]int{}
	answer, err := get(readSocket, "/v1/samples?for=500ms")
	if err != nil || answer.status != http.StatusOK {
		return nil // none are taken at this moment
	}
	for line := range strings.Lines(answer.body) {
		var l sample.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			f.Fatal(err)
		}
		if strings.HasPrefix(l.Reason, "slot ") {
			l.Reason = "unknown"
		}
		found[l.Reason]++
	}
	return found
}

// counted returns the counter of the rule in the metrics.
func (f *followed) counted() float64 {
	f.Helper()
	return metric(f.must(http.StatusOK, readSocket, "/v1/metrics").body, `floodwall_rule_packets_total{rule="port7",stage="xdp",verdict="drop"}`)
}

// since reports whether the capture has a packet that arrived after a time. The size of the file would not tell, because the capture also writes
// packets that waited.
func (c *capturer) since(t *testing.T, after time.Time) bool {
	t.Helper()
	in, err := sample.OpenFile(c.file)
	if err != nil {
		return false // the file has no head yet
	}
	defer in.Close()
	for {
		p, err := in.Read()
		switch {
		case errors.Is(err, io.EOF):
			return false
		case err != nil:
			t.Fatal(err)
		case p.Time.After(after):
			return true
		}
	}
}
