// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// legitimate are the packets of clients that send all the time.
var legitimate = []string{
	"udp 203.0.113.7:4000 > 192.0.2.1:5000 len=100", "udp 203.0.113.8:4001 > 192.0.2.1:5000 len=120", "udp 203.0.113.9:4002 > 192.0.2.1:5000 len=468",
}

// ntpFlood returns an amplification attack. A rule of the policy drops half of its packets.
func ntpFlood() (packets []string) {
	for i := range 20 {
		packets = append(packets, fmt.Sprintf("udp 198.51.100.%d:123 > 192.0.2.1:%d len=468 payload=0xd700032a", 10+i, 4000+i),
			fmt.Sprintf("udp 198.51.100.%d:123 > 192.0.2.1:7 len=468 payload=0xd700032a", 10+i))
	}
	return packets
}

// detecting writes a policy with detection and a baseline, and returns its path. It also writes the usual rates that an earlier daemon would have
// learned.
func detecting(t *testing.T, state string) string {
	t.Helper()
	dir := t.TempDir()
	good := filepath.Join(dir, "good.pcapng")
	f, err := os.Create(good)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := sample.NewFileWriter(f, 256, "fw0")
	for i := 0; err == nil && i < 1200; i++ {
		var spec packet.Spec
		if spec, err = packet.Parse(legitimate[i%len(legitimate)]); err == nil {
			frame := spec.Frame()
			err = w.Write(sample.Sample{Time: time.Now(), Device: "fw0", Length: len(frame), Frame: frame[:min(len(frame), 256)]}, "")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(state, "attacks")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	seconds := strings.Repeat("40,", 19) + "40"
	if err := os.WriteFile(filepath.Join(kept, "usual.json"), []byte(`{"seconds": [`+seconds+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "policy.yaml")
	text := "devices: [fw0]\ndefault: pass\nchecks: off\ndaemon: {sample: 1/10}\ndetect: {baseline: " + good + ", least: 200/s, quiet: 2s}\n" +
		"rules:\n  - {name: port7, proto: udp, port: 7, then: drop}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// automatic writes the policy of detecting with `auto` and the given bounds, and returns its path.
func automatic(t *testing.T, state, bounds string) string {
	t.Helper()
	file := detecting(t, state)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, strings.Replace(string(text), "quiet: 2s", "quiet: 2s, auto: "+bounds, 1))
	return file
}

// received returns the number of packets that have reached a socket on port 5000.
func received(t *testing.T) *atomic.Int64 {
	t.Helper()
	sh(t, "ip link set fw0 address 02:00:00:00:00:02; sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.fw0.rp_filter=0") // for strangers
	return arrivals(t, "192.0.2.1:5000")
}

// attacksOf requests the attacks from the daemon.
func (h *apiHost) attacksOf() (list api.AttackList) {
	h.Helper()
	if err := json.Unmarshal([]byte(h.must(http.StatusOK, readSocket, "/v1/attacks").body), &list); err != nil {
		h.Fatal(err)
	}
	return list
}

// TestAttack runs the daemon with only the capabilities of its unit. The daemon must detect an amplification attack, identify its kind, and suggest a
// rule that drops nothing of the baseline. After a kill, the next daemon must continue the same report and detect the end of the attack. A client's
// packets must reach its socket all the time. Then the test uses rules from the packets of the report, and rules of the report itself. The first are
// applied, promoted and removed. The second are added for a time, promoted, and end by themselves.
func TestAttack(t *testing.T) {
	if !inside(t) {
		return
	}
	state := t.TempDir()
	file := detecting(t, state)
	mustFloodwall(t, "apply", file, "--state", state)
	got := received(t)
	sendMeanwhile(t, "fw1", 75*time.Millisecond, legitimate...)
	h := startUnitDaemon(t, "--state", state)
	if list := h.attacksOf(); list.Active != 0 || len(list.Attacks) != 0 {
		t.Fatalf("in quiet times: %+v", list)
	}
	stop := sendMeanwhile(t, "fw1", 10*time.Millisecond, ntpFlood()...)
	var report attack.Report
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon said:\n%s\nreport %+v\n%s", h.said, report, mustFloodwall(t, "status"))
		}
	})
	waitFor(t, "a suggestion", func() bool {
		list := h.attacksOf()
		if len(list.Attacks) == 0 {
			return false
		}
		report = attack.Report{}
		if err := json.Unmarshal([]byte(h.must(http.StatusOK, readSocket, "/v1/attacks/"+list.Attacks[0].ID).body), &report); err != nil {
			t.Fatal(err)
		}
		return report.Suggestion != nil
	})
	if v := report.Vectors; len(v) == 0 || v[0].Name != "NTP amplification" || v[0].Share < 0.9 {
		t.Errorf("kinds: %+v", v)
	}
	s := report.Suggestion
	if s.Baseline != 1200 || s.Collateral == nil || s.Collateral.Part() > attack.Collateral || s.Coverage.Part() < 0.9 ||
		!strings.Contains(s.Rules[0].Text, "observe: true") || !strings.Contains(s.Rules[0].Text, "udp/123") {
		t.Errorf("suggestion: %+v", s)
	}
	if metrics := h.must(http.StatusOK, readSocket, "/v1/metrics").body; !strings.Contains(metrics, "\nfloodwall_attack_active 1\n") {
		t.Error("no metric says that an attack goes on")
	}
	h.kill()
	before := got.Load()
	h = startUnitDaemon(t, "--state", state)
	waitFor(t, "the attack to go on", func() bool { return h.attacksOf().Active == 1 })
	waitFor(t, "packets of the client", func() bool { return got.Load() > before+20 })
	stop()
	waitFor(t, "the end", func() bool { return h.attacksOf().Active == 0 })
	list := h.attacksOf().Attacks
	if len(list) != 1 || list[0].ID != report.ID || list[0].Ended == nil || list[0].Dropped.Packets < 100 || list[0].Passed.Packets < 100 {
		t.Fatalf("after the end: %+v", list)
	}
	if !strings.Contains(h.said.String(), "NTP amplification") || !strings.Contains(h.said.String(), ": over after") {
		t.Errorf("the daemon said:\n%s", h.said)
	}
	h.reportForms(report.ID, state)
	h.lifeOfRule(file, filepath.Join(state, "attacks", report.ID+".pcapng"))
	h.ruleExpires(report.Suggestion.Rules)
}

// reportForms requests a report in all its formats.
func (h *apiHost) reportForms(id, state string) {
	t := h.T
	t.Helper()
	page := h.must(http.StatusOK, readSocket, "/v1/attacks/"+id+"/page").body
	if !strings.Contains(page, "NTP amplification") || !strings.Contains(page, "port7") || strings.Contains(page, "<script") {
		t.Errorf("page:\n%s", page)
	}
	file := filepath.Join(t.TempDir(), "attack.pcapng")
	if err := os.WriteFile(file, []byte(h.must(http.StatusOK, readSocket, "/v1/attacks/"+id+"/capture").body), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := sample.OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if p, err := r.Read(); err != nil || packet.Decode(p.Frame).Kind != packet.IP {
		t.Errorf("the capture: %+v, %v", p, err)
	}
	text := mustFloodwall(t, "--state", state, "attacks", id)
	for _, want := range []string{"NTP amplification", "port7", "198.51.100.", "then: drop}", "it ended"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	if html := mustFloodwall(t, "--state", state, "attacks", id, "--html"); html != page {
		t.Errorf("the command and the API have different pages:\n%s\n%s", html, page)
	}
	if text := mustFloodwall(t, "--state", state, "attacks", id, "--json"); values(t, text)["id"] != id {
		t.Errorf("as JSON:\n%s", text)
	}
	if list := mustFloodwall(t, "--state", state, "attacks"); !strings.Contains(list, id) {
		t.Errorf("the list:\n%s", list)
	}
	for _, bad := range []string{"20010101-000000", "..%2f..%2fetc%2fpasswd", "usual"} {
		h.must(http.StatusNotFound, readSocket, "/v1/attacks/"+bad)
		h.must(http.StatusNotFound, readSocket, "/v1/attacks/"+bad+"/capture")
	}
	if out, err := floodwall("--state", state, "attacks", "../usual"); err == nil || !strings.Contains(out, "there is no report of this attack") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDetectWithoutBaseline uses a policy that names a missing capture as baseline. The daemon must report this at its start, and not only during an
// attack.
func TestDetectWithoutBaseline(t *testing.T) {
	if !inside(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("devices: [fw0]\ndefault: pass\ndetect: {baseline: /nowhere/good.pcapng}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustFloodwall(t, "apply", file)
	h := startUnitDaemon(t)
	waitFor(t, "the warning", func() bool {
		return strings.Contains(h.said.String(), "detect: the baseline: open /nowhere/good.pcapng")
	})
}
