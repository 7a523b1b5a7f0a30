// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/features"
)

// TestFloodedShown has a flood begin and end. Each view must show the mode of the device and the same time of the last move. The event and the report of
// the attack must have the move. An apply is no move.
func TestFloodedShown(t *testing.T) {
	if !inside(t) || features.TCX() != nil {
		return
	}
	sh(t, "ip link set fw0 address 02:00:00:00:00:02; sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.fw0.rp_filter=0")
	state := t.TempDir()
	file := detecting(t, state)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "daemon: {", "xdp: {when: flooded, start: 300/s, calm: 3s}\ndaemon: {listen: "+pageAddress+", ", 1))
	writeFile(t, file, string(text))
	mustFloodwall(t, "apply", file, "--state", state)
	v := &modeViews{apiHost: startDaemon(t, "--state", state), state: state}
	waitFor(t, "the page", func() bool { return reachable(pageAddress) })
	v.browser = startBrowser(t)
	v.browser.open(pageAddress)

	v.show("tc", "native in a flood")
	begin := time.Now()
	stop := sendMeanwhile(t, "fw1", 500*time.Microsecond, ntpFlood()...)
	moved := v.show("native", "tc without a flood")
	if moved.Before(begin) || moved.After(time.Now()) {
		t.Errorf("the program moved at %v, in a flood that began at %v", moved, begin)
	}
	writeFile(t, file, string(text)+"  - {name: port8, proto: udp, port: 8, then: drop}\n")
	mustFloodwall(t, "apply", file, "--state", state)
	if again := v.device().Since; !again.Equal(moved) {
		t.Errorf("after an apply the program is there since %v, not %v", again, moved)
	}
	waitFor(t, "an attack", func() bool { return v.attacksOf().Active == 1 })
	waitFor(t, "the attack in `status`", func() bool { return strings.Contains(mustFloodwall(t, "status", "--state", state), "\nattack at ") })
	stop()
	returned := v.show("tc", "native in a flood")
	if !returned.After(moved) {
		t.Errorf("the program returned at %v, and moved at %v", returned, moved)
	}
	waitFor(t, "the end of the attack", func() bool { return v.attacksOf().Active == 0 })
	v.reported(moved)
	v.clean(pageAddress)
}

// modeViews reads the views of the mode of the device fw0.
type modeViews struct {
	*apiHost
	*browser
	state string
}

// device returns the device as `status` has it.
func (v *modeViews) device() control.DeviceStatus { return v.commandStatus().Devices[0] }

// show waits until each view shows a mode, and returns the time of the move to it. other says when the mode changes.
func (v *modeViews) show(mode, other string) time.Time {
	t := v.apiHost.T
	t.Helper()
	waitFor(t, "mode "+mode, func() bool { d := v.device(); return d.Mode == mode && d.ByFlood })
	since := *v.device().Since
	if out := mustFloodwall(t, "status"); !strings.Contains(out, " "+mode+" for ") || !strings.Contains(out, ", "+other+"\n") {
		t.Errorf("`status` lacks mode %s:\n%s", mode, out)
	}
	if out := mustFloodwall(t, "top", "--once", "--every", "200ms"); !strings.Contains(out, "\ndevice fw0: "+mode+" for ") || !strings.Contains(out, ", "+other+"\n") {
		t.Errorf("`top` lacks mode %s:\n%s", mode, out)
	}
	var top operate.Top
	if err := json.Unmarshal([]byte(v.must(http.StatusOK, readSocket, "/v1/top?for=200ms").body), &top); err != nil {
		t.Fatal(err)
	}
	if len(top.Places) != 1 || top.Places[0].Mode != mode || !top.Places[0].Since.Equal(since) {
		t.Errorf("/v1/top has %+v, want mode %s since %v", top.Places, mode, since)
	}
	metrics := v.must(http.StatusOK, readSocket, "/v1/metrics").body
	for _, of := range []string{"native", "generic", "tc"} {
		want := map[bool]string{true: "1", false: "0"}[of == mode]
		if line := "floodwall_device_mode{device=\"fw0\",mode=\"" + of + "\"} " + want + "\n"; !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	_, figure, _ := strings.Cut(metrics, "floodwall_device_mode_timestamp_seconds{device=\"fw0\"} ")
	figure, _, _ = strings.Cut(figure, "\n")
	if seconds, err := strconv.ParseFloat(figure, 64); err != nil || time.UnixMilli(int64(seconds*1000)).Sub(since).Abs() > 2*time.Millisecond {
		t.Errorf("the metrics have the time %s, want %v: %v", figure, since, err)
	}
	want := mode + " since " + since.Local().Format(time.TimeOnly) + ", " + other
	v.until("the page shows "+want, func() bool { return v.rows("devices")["fw0"]["mode"] == want })
	return since
}

// reported checks the events of the moves, and the report of the attack in each of its forms.
func (v *modeViews) reported(moved time.Time) {
	t := v.apiHost.T
	t.Helper()
	for want, times := range map[string]int{
		"device fw0 runs in native mode, no more in tc mode: there is a flood":  1,
		"device fw0 runs in tc mode, no more in native mode: there is no flood": 2, // also at the start of the daemon
	} {
		if n := strings.Count(v.said.String(), want); n != times {
			t.Errorf("the daemon said %d times, not %d: %q:\n%s", n, times, want, v.said)
		}
		v.until("the page has the event "+want, func() bool { return strings.Contains(v.text("events"), want) })
	}
	id := v.attacksOf().Attacks[0].ID
	var report attack.Report
	if err := json.Unmarshal([]byte(v.must(http.StatusOK, readSocket, "/v1/attacks/"+id).body), &report); err != nil {
		t.Fatal(err)
	}
	if p := report.Places; !slices.ContainsFunc(p, func(d control.DeviceStatus) bool {
		return d.Name == "fw0" && d.Mode == "native" && d.Since.Equal(moved)
	}) {
		t.Errorf("the report has %+v, want native from %v", p, moved)
	}
	out := mustFloodwall(t, "--state", v.state, "attacks", id)
	if !strings.Contains(out, "\nmode: fw0 ") || !strings.Contains(out, "fw0 native from "+moved.Local().Format(time.TimeOnly)) {
		t.Errorf("the report lacks the move:\n%s", out)
	}
	page := v.must(http.StatusOK, readSocket, "/v1/attacks/"+id+"/page").body
	if !strings.Contains(page, "fw0 native from "+moved.UTC().Format("2006-01-02 15:04:05 UTC")) {
		t.Errorf("the page of the report lacks the move:\n%s", page)
	}
}
