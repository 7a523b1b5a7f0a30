// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestTopLooksItself runs a daemon without samples, like a daemon that may not open packet sockets. The policy has `sample`, but top must take
// samples itself in three cases: on nftables without a request to the daemon, on XDP after the daemon's answer, and for durations that the daemon
// does not support.
func TestTopLooksItself(t *testing.T) {
	if !inside(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("devices: [fw0]\ndefault: pass\nchecks: off\ndaemon: {sample: 1/10}\nrules: [{name: port7, proto: udp, port: 7, then: drop}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(readSocket), 0o755); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", readSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	asked := make(chan string, 100)
	go http.Serve(socket, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Query().Get("for")
		io.WriteString(w, `{"policy": "told", "seconds": 1, "warning": "no samples: operation not permitted"}`)
	}))
	sendMeanwhile(t, "fw1", 200*time.Microsecond, "udp 198.51.100.9:9 > 192.0.2.1:4000")
	for target, asks := range map[string]int{"nftables": 0, "xdp": 1} {
		mustFloodwall(t, "apply", file, "--target", target)
		out := ""
		if !testutil.Eventually(filteredAgain, func() bool { // on a busy machine no packet may arrive in a second
			out = mustFloodwall(t, "top", "--once", "--every", "1s")
			if len(asked) != asks {
				t.Errorf("%s: the daemon was asked %d times, want %d", target, len(asked), asks)
			}
			for range len(asked) {
				<-asked
			}
			return strings.Contains(out, "198.51.100.9/32")
		}) {
			t.Errorf("%s: top shows no samples:\n%s", target, out)
		}
		if target == "xdp" {
			h := operate.NewHost(datapath.DefaultDir, t.TempDir(), func(error) {})
			next, end, err := WatchTop(t.Context(), h, readSocket, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			next(short, time.Minute)
			cancel()
			if len(asked) > 0 {
				t.Error("the daemon is asked for a minute, which is longer than it looks")
			}
			end()
		}
	}
}

// TestTopFindsTheDaemon runs a daemon with its sockets in another directory. top must find these sockets. It must then also show the packets that XDP
// drops, which only the daemon samples. Prometheus must find the metrics at its default path.
func TestTopFindsTheDaemon(t *testing.T) {
	if !inside(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, file, "devices: [fw0]\ndefault: pass\nchecks: off\ndaemon: {sample: 1/10}\nrules:\n  - {name: port7, proto: udp, port: 7, then: drop}\n")
	mustFloodwall(t, "apply", file)
	run := filepath.Join(t.TempDir(), "run")
	startDaemonIn(t, run, "--run", run)
	sendMeanwhile(t, "fw1", time.Millisecond, "udp 198.51.100.9:9 > 192.0.2.1:7")
	waitFor(t, "samples of what is dropped", func() bool {
		var top operate.Top
		if err := json.Unmarshal([]byte(mustFloodwall(t, "top", "--once", "--every", "1s", "--json")), &top); err != nil {
			t.Fatal(err)
		}
		s := top.Samples
		return s != nil && len(s.Sources) > 0 && s.Sources[0].Dropped != nil && *s.Sources[0].Dropped == 1
	})
	for _, path := range []string{"/metrics", "/v1/metrics"} {
		if answer, err := get(filepath.Join(run, "read.sock"), path); err != nil || answer.status != http.StatusOK || !strings.Contains(answer.body, `floodwall_rule_packets_total{rule="port7"`) {
			t.Errorf("%s: %v, %+v", path, err, answer)
		}
	}
}
