// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// apiHost is a host whose daemon serves the API.
type apiHost struct {
	*testing.T
	daemon *exec.Cmd
	said   *lines
}

// startDaemon starts the daemon and waits until its sockets answer.
func startDaemon(t *testing.T, args ...string) *apiHost {
	t.Helper()
	return startDaemonIn(t, "/run/floodwall", args...)
}

// startDaemonIn starts a daemon whose sockets are in a directory.
func startDaemonIn(t *testing.T, dir string, args ...string) *apiHost {
	t.Helper()
	return startCommand(t, dir, exec.Command("floodwall", append([]string{"daemon"}, args...)...))
}

// startInstalled starts the daemon of the program, as it is installed. Its memory is that of a user's daemon: other tests start the daemon that is in
// the test binary.
func startInstalled(t *testing.T) *apiHost {
	t.Helper()
	daemon := exec.Command(filepath.Join(os.Getenv(programsVar), "floodwall"), "daemon")
	// scripts/test sets GOGC, which comes before the daemon's own setting.
	daemon.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOGC=") })
	return startCommand(t, filepath.Dir(readSocket), daemon)
}

// startCommand starts a daemon and waits until it answers on its socket in dir.
func startCommand(t *testing.T, dir string, daemon *exec.Cmd) *apiHost {
	t.Helper()
	h := &apiHost{T: t, daemon: daemon, said: new(lines)}
	h.daemon.Stdout, h.daemon.Stderr = h.said, h.said
	if err := testutil.Start(h.daemon); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.kill)
	waitFor(t, "the API", func() bool {
		_, err := get(filepath.Join(dir, "read.sock"), "/v1/openapi.json")
		return err == nil
	})
	return h
}

// kill ends the daemon without cleanup.
func (h *apiHost) kill() {
	h.daemon.Process.Kill()
	h.daemon.Wait()
}

// The sockets of the default instance.
const (
	readSocket    = "/run/floodwall/read.sock"
	controlSocket = "/run/floodwall/control.sock"
)

// client returns an HTTP client that connects to a unix socket or to a TCP address.
func client(address string) *http.Client {
	network := "unix"
	if !strings.HasPrefix(address, "/") {
		network = "tcp"
	}
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
}

// answer is an answer of the API.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.body) }

// get sends a GET request for a path.
func get(address, path string) (answer, error) {
	return request(client(address), http.MethodGet, path, nil)
}

// post sends a value as JSON.
func post(address, path string, body any) (answer, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	return request(client(address), http.MethodPost, path, text)
}

func request(c *http.Client, method, path string, body []byte) (answer, error) {
	r, err := http.NewRequest(method, "http://floodwall"+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// must sends a GET request and checks the status of the answer.
func (h *apiHost) must(status int, address, path string) answer {
	h.Helper()
	a, err := get(address, path)
	if err != nil || a.status != status {
		h.Fatalf("GET %s on %s: %v, %v, want status %d; the daemon said:\n%s", path, address, a, err, status, h.said)
	}
	return a
}

// values parses a JSON object.
func values(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, text)
	}
	return v
}

// status returns the status from the API.
func (h *apiHost) status() map[string]any {
	return lasting(values(h.T, h.must(200, readSocket, "/v1/status").body))
}

// lasting removes from a status the values that change between two requests.
func lasting(status map[string]any) map[string]any {
	for _, key := range []string{"mix", "measured", "predicted"} {
		delete(status["placement"].(map[string]any), key)
	}
	return status
}

// TestAPIStatus compares the API with the command on each target. Both must give the same answer, with the packets that arrived on the wire.
func TestAPIStatus(t *testing.T) {
	if !inside(t) {
		return
	}
	sh(t, "ip link set fw0 address 02:00:00:00:00:02") // the destination address of testutil.Send
	h := startDaemon(t)
	for _, path := range []string{"/v1/status", "/v1/rules"} {
		if a := h.must(http.StatusNotFound, readSocket, path); values(t, a.body)["hint"] == nil {
			t.Errorf("GET %s with nothing loaded: %v", path, a)
		}
	}
	if a := h.must(http.StatusServiceUnavailable, readSocket, "/v1/health"); values(t, a.body)["in_force"] != false {
		t.Errorf("health with nothing loaded: %v", a)
	}
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		mustFloodwall(t, "apply", drops(t, 7), "--target", target)
		mustFloodwall(t, "block", "198.51.100.7", "192.0.2.64/26")
		if err := testutil.Send("fw1", "udp 198.51.100.9:9 > 192.0.2.1:7", 5); err != nil {
			t.Fatal(err)
		}
		waitFor(t, target+": 5 packets", func() bool {
			return strings.Contains(h.must(200, readSocket, "/v1/rules").body, `"packets": 5,`)
		})
		diff := ""
		for range 10 { // packets of neighbor discovery may come between the two
			if diff = cmp.Diff(h.status(), lasting(values(t, mustFloodwall(t, "status", "--json")))); diff == "" {
				break
			}
		}
		if diff != "" {
			t.Errorf("%s: status by the API (-) and by the command (+):\n%s", target, diff)
		}
		if a := h.must(200, readSocket, "/v1/health"); values(t, a.body)["in_force"] != true {
			t.Errorf("%s: health: %v", target, a)
		}
		mustFloodwall(t, "unload")
	}
}

// TestAPIKilled kills the daemon. Its sockets stay, and the next daemon must replace them. While a daemon runs, a second daemon must not start, and
// the first one must continue.
func TestAPIKilled(t *testing.T) {
	if !inside(t) {
		return
	}
	mustFloodwall(t, "apply", drops(t, 7))
	h := startDaemon(t)
	if out, err := floodwall("daemon"); err == nil || !strings.Contains(out, "another daemon runs for this instance") {
		t.Errorf("a second daemon: %v\n%s", err, out)
	}
	out, err := floodwall("daemon", "--bpffs", "/sys/fs/bpf/other", "--run", "/run/floodwall")
	if err == nil || !strings.Contains(out, "another daemon serves the sockets of /run/floodwall: process") || !strings.Contains(out, "--run") {
		t.Errorf("a daemon of another instance with the same directory: %v\n%s", err, out)
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	out, err = floodwall("daemon", "--bpffs", "/sys/fs/bpf/other", "--run", open)
	if err == nil || !strings.Contains(out, open+" can be written by others") || !strings.Contains(out, "hint: the directory must belong") {
		t.Errorf("a daemon with a directory of everybody: %v\n%s", err, out)
	}
	h.must(200, readSocket, "/v1/health")
	h.kill()
	if _, err := os.Stat(readSocket); err != nil {
		t.Fatalf("the socket of a daemon that was killed: %v", err)
	}
	if _, err := get(readSocket, "/v1/health"); err == nil {
		t.Fatal("somebody answers on the socket of a daemon that was killed")
	}
	h = startDaemon(t)
	h.must(200, readSocket, "/v1/health")
	other := startDaemonIn(t, "/run/floodwall/sys-fs-bpf-other", "--bpffs", "/sys/fs/bpf/other")
	other.must(http.StatusServiceUnavailable, "/run/floodwall/sys-fs-bpf-other/read.sock", "/v1/health")
	for _, d := range []*apiHost{other, h} {
		d.daemon.Process.Signal(unix.SIGTERM)
		if err := d.daemon.Wait(); err != nil {
			t.Errorf("the end of a daemon: %v\n%s", err, d.said)
		}
	}
	if left, _ := os.ReadDir("/run/floodwall"); len(left) > 0 {
		t.Errorf("left in /run/floodwall: %v", left)
	}
}

// lines collects the output of a process.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// sh runs a shell script.
func sh(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}
