package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemonclient"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/operate"
)

// TestTopLooksItself has a daemon without samples, as one has where it may not open packet sockets. With `sample` in the policy, top looks
// itself all the same: on nftables without asking, on XDP after the answer, and for a time for which the daemon does not look.
func TestTopLooksItself(t *testing.T) {
	if !inside(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("devices: [fw0]\ndefault: pass\ndaemon: {sample: 1/10}\nrules: [{name: port7, proto: udp, port: 7, then: drop}]\n"), 0o600); err != nil {
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
		if out := mustFloodwall(t, "top", "--once", "--every", "1s"); !strings.Contains(out, "198.51.100.9/32") {
			t.Errorf("%s: top shows no samples:\n%s", target, out)
		}
		if len(asked) != asks {
			t.Errorf("%s: the daemon was asked %d times, want %d", target, len(asked), asks)
		}
		for range len(asked) {
			<-asked
		}
		if target == "xdp" {
			h := operate.NewHost(datapath.DefaultDir, t.TempDir(), func(error) {})
			next, end, err := daemonclient.WatchTop(t.Context(), h, readSocket, time.Minute)
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
