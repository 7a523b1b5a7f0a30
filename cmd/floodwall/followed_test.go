package main

import (
	"encoding/json"
	"fmt"
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

// followed is a host under a flood whose daemon shows all that it reads from the program, while other programs take its place.
type followed struct {
	*apiHost
	state, file, db, capture string
	offenders                int // so many have exceeded the limit
}

// TestDaemonFollows changes what runs beside a daemon in every way in which that gets another program: applies, trials, a rollback, an exchange
// of sets, an unload. After each, all that reads from the program goes on: top, the stream of samples, the report of the attack, automatic
// rules, metrics, a capture, bans of a limit. Nobody restarts the daemon.
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
		{"a trial with confirm", func() { apply("--confirm", "1m")(); f.sees("a trial"); floodwall("confirm") }},
		{"a rollback", func() { floodwall("rollback") }},
		{"a trial that nobody confirms", func() {
			apply("--confirm", "3s")()
			waitFor(t, "the end of the trial", func() bool { return strings.Contains(f.said.String(), "ended unconfirmed") })
		}},
		{"an exchange of sets", func() {
			f.country("FR", "203.0.112.0/24")
			waitFor(t, "the exchange", func() bool { return strings.Contains(f.said.String(), `set \"far\" is exchanged`) })
		}},
		{"an apply after an unload", func() { // the numbers of generations begin again, and a capture ends
			floodwall("unload")
			apply()()
			f.startCapture()
		}},
	} {
		change.make()
		f.sees(change.name)
	}
	f.stops()
}

// stops has the daemon stand still: who looks at the kernel says that samples are not read, and of one that goes on nothing.
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

// startCapture captures what the rule hands out.
func (f *followed) startCapture() {
	f.Helper()
	f.capture = filepath.Join(f.TempDir(), "port7.pcapng")
	cmd := exec.Command("floodwall", "capture", "--rule", "port7", "-w", f.capture)
	if err := testutil.Start(cmd); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
}

// country writes the database of the live set.
func (f *followed) country(country, prefix string) {
	f.Helper()
	if err := testutil.Write(f.db, testutil.Network{Prefix: prefix, Country: country}); err != nil {
		f.Fatal(err)
	}
}

// sees waits until each feature has seen packets of now.
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
		{"the capture", grows(f.captured)},
		{"bans of a limit", func() bool { return strings.Contains(mustFloodwall(t, "blocked", "--state", f.state), offender) }},
	} {
		if strings.Contains(feature.name, "automatic") && (when == "a trial" || when == "an apply after an unload") {
			continue // during a trial temporary rules stay as they are, and who unloads removes them
		}
		if !testutil.Eventually(30*time.Second, feature.is) {
			t.Errorf("after %s: nothing of now in %s", when, feature.name)
		}
	}
	if out := mustFloodwall(t, "status"); strings.Contains(out, "not read") {
		t.Errorf("after %s: status warns of samples:\n%s", when, out)
	}
	t.Logf("%-30s all is seen after %.1f s", when, time.Since(began).Seconds())
}

// read asks the daemon.
func (f *followed) read(path string, to any) {
	f.Helper()
	if err := json.Unmarshal([]byte(f.must(http.StatusOK, readSocket, path).body), to); err != nil {
		f.Fatal(err)
	}
}

// grows reports whether a figure has grown since it was asked last.
func grows(figure func() float64) func() bool {
	last := figure()
	return func() bool {
		before := last
		last = figure()
		return last > before
	}
}

// reported is how many samples the report of the attack is of.
func (f *followed) reported() float64 {
	f.Helper()
	var r attack.Report
	f.read("/v1/attacks/"+f.attacksOf().Attacks[0].ID, &r)
	if r.Samples == nil {
		return 0
	}
	return float64(r.Samples.Packets)
}

// reasons are those of the samples of a moment.
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

// counted is what the metrics say of a rule.
func (f *followed) counted() float64 {
	f.Helper()
	return metric(f.must(http.StatusOK, readSocket, "/v1/metrics").body, `floodwall_rule_packets_total{rule="port7",stage="xdp",verdict="drop"}`)
}

// captured is how much the capture has written.
func (f *followed) captured() float64 {
	info, err := os.Stat(f.capture)
	if err != nil {
		return 0
	}
	return float64(info.Size())
}
