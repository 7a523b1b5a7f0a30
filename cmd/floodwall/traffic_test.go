// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/test/testutil"
)

// startUnitDaemon starts a daemon with exactly the capabilities of its unit. The parameter args has further arguments of the command.
func startUnitDaemon(t *testing.T, args ...string) *apiHost {
	t.Helper()
	testutil.RequireTool(t, "setpriv")
	line := []string{"--inh-caps=-all," + unitRights, "--bounding-set=-all," + unitRights, "floodwall", "daemon"}
	h := &apiHost{T: t, daemon: exec.Command("setpriv", append(line, args...)...), said: new(lines)}
	h.daemon.Stdout, h.daemon.Stderr = h.said, h.said
	if err := testutil.Start(h.daemon); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.kill)
	waitFor(t, "the API", func() bool {
		_, err := get(readSocket, "/v1/openapi.json")
		return err == nil
	})
	return h
}

// sendMeanwhile sends the packets in turn, with a pause after each, until the test ends or the caller calls stop.
func sendMeanwhile(t *testing.T, device string, pause time.Duration, packets ...string) (stop func()) {
	t.Helper()
	done, sent := make(chan struct{}), make(chan error, 1)
	go func() {
		sent <- testutil.SendFor(device, packets, func(int) bool {
			select {
			case <-done:
				return false
			case <-time.After(pause):
				return true
			}
		})
	}()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		close(done)
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// TestSampledTraffic runs the daemon with only the capabilities of its unit, so the daemon cannot open packet sockets. With `sample` in the policy,
// the daemon must report senders of dropped and of passed packets. It must find a rule against the passing packets. The command must request this
// data from the daemon.
func TestSampledTraffic(t *testing.T) {
	if !inside(t) {
		return
	}
	dir := t.TempDir()
	file, db := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "places.mmdb")
	if err := testutil.Write(db, testutil.Network{Prefix: "198.51.100.9/32", Country: "NL", ASN: 64500}, testutil.Network{Prefix: "192.0.2.128/25", Country: "FR", ASN: 64501}); err != nil {
		t.Fatal(err)
	}
	text := "devices: [fw0]\ndefault: pass\nchecks: off\ndaemon: {sample: 1/10}\nsets: {far: {country: [FR], db: " + db + "}}\nrules:\n" +
		"  - {name: far, from: $far, then: drop}\n  - {name: port7, proto: udp, port: 7, then: drop}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := mustFloodwall(t, "apply", file); !strings.Contains(out, "nobody takes samples of the traffic while `floodwall daemon` does not run") {
		t.Errorf("apply without a daemon says nothing of it:\n%s", out)
	}
	h := startUnitDaemon(t)
	var packets []string
	for _, from := range []string{"11", "12", "13", "14", "15"} {
		packets = append(packets, "udp 198.51.100.9:9 > 192.0.2.1:7", "udp 198.51.100."+from+":123 > 192.0.2.1:40"+from+" len=468 payload=0xd700032a")
	}
	sendMeanwhile(t, "fw1", 200*time.Microsecond, packets...)
	var top operate.Top
	waitFor(t, "samples", func() bool {
		answer := h.must(http.StatusOK, readSocket, "/v1/top?for=1s").body
		top = operate.Top{}
		if err := json.Unmarshal([]byte(answer), &top); err != nil {
			t.Fatal(err)
		}
		return top.Samples != nil && top.Samples.Packets > 100
	})
	seen := map[string]float64{}
	for _, s := range top.Samples.Sources {
		if s.Dropped == nil {
			t.Fatalf("%+v tells nothing of what is dropped", s)
		}
		seen[s.Key] = *s.Dropped
	}
	if share, there := seen["198.51.100.9/32"]; !there || share < 0.99 {
		t.Errorf("the source that is dropped: %v, %v", share, there)
	}
	if share, there := seen["198.51.100.11/32"]; !there || share > 0.01 {
		t.Errorf("a source that passes: %v, %v; all: %v", share, there, seen)
	}
	if v := top.Samples.Verdicts; v["drop"] == 0 || v["pass"] == 0 {
		t.Errorf("verdicts of samples: %v", v)
	}
	if c, a := top.Samples.Fields["country"], top.Samples.Fields["asn"]; len(c) != 1 || c[0].Key != "NL" || *c[0].Dropped < 0.99 || len(a) != 1 || a[0].Key != "AS64500" {
		t.Errorf("countries %+v, autonomous systems %+v", c, a)
	}
	var found operate.Suggestion
	waitFor(t, "samples that suffice for a rule", func() bool { // on a busy machine few packets arrive in a second
		found = operate.Suggestion{}
		if err := json.Unmarshal([]byte(h.must(http.StatusOK, readSocket, "/v1/suggest?for=1s").body), &found); err != nil {
			t.Fatal(err)
		}
		return len(found.Rules) > 0
	})
	if !strings.Contains(found.Rules[0].Text, "length: 468") || len(found.Dropped) != 1 || found.Dropped[0].Name != "port7" {
		t.Errorf("%+v", found)
	}
	out := ""
	if !testutil.Eventually(filteredAgain, func() bool {
		out = mustFloodwall(t, "top", "--once", "--every", "1s")
		return strings.Contains(out, "of what comes to XDP") && strings.Contains(out, "dropped  from") && strings.Contains(out, "AS64500")
	}) {
		t.Errorf("top does not show what the daemon sees:\n%s", out)
	}
	suggested := func() (out string) {
		waitFor(t, "packets that suffice for a rule", func() (ok bool) {
			text, err := floodwall("suggest", file, "--live", "--for", "1s")
			out = text
			return err == nil
		})
		return out
	}
	live := suggested()
	if !strings.Contains(live, "port7 drops them already") || !strings.Contains(live, "length: 468") {
		t.Errorf("suggest does not ask the daemon:\n%s", live)
	}
	h.kill()
	live = suggested()
	if strings.Contains(live, "port7 drops") || !strings.Contains(live, "length: 468") {
		t.Errorf("suggest without a daemon:\n%s", live)
	}
}
