// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/daemon/operate"
)

// change sends a change to the control socket, and checks the status of the answer.
func (h *apiHost) change(status int, path string, body any) answer {
	h.Helper()
	a, err := post(controlSocket, path, body)
	if err != nil || a.status != status {
		h.Fatalf("POST %s %+v: %v, %v, want status %d; the daemon said:\n%s", path, body, a, err, status, h.said)
	}
	return a
}

// audited waits for a line of the audit log that contains all the words.
func (h *apiHost) audited(words ...string) {
	h.Helper()
	waitFor(h.T, fmt.Sprintf("a line of the audit with %q", words), func() bool {
		for line := range strings.Lines(h.said.String()) {
			has := strings.Contains(line, "msg=change")
			for _, w := range words {
				has = has && strings.Contains(line, w)
			}
			if has {
				return true
			}
		}
		return false
	})
}

// inSession sends a request to the control socket from a process of the SSH session. It returns the answer, with its status in the last line.
func inSession(t *testing.T, path string, body any) string {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("curl", "-s", "--unix-socket", controlSocket, "-d", string(text), "-H", "Content-Type: application/json",
		"-w", "\n%{http_code}", "http://floodwall"+path).CombinedOutput()
	if err != nil {
		t.Fatalf("curl: %v: %s", err, out)
	}
	return string(out)
}

// TestAPIChange sends each kind of change through the API: apply, block, apply on trial, confirm and rollback. It checks the results in the loaded
// program and with the command. It also checks the user in the audit log.
func TestAPIChange(t *testing.T) {
	if !inside(t) {
		return
	}
	h := startDaemon(t)
	self := "pid=" + strconv.Itoa(os.Getpid())
	one, two := drops(t, 1), drops(t, 2)
	if a := h.change(200, "/v1/apply", operate.Order{Policy: one}); values(t, a.body)["generation"] != 1.0 {
		t.Errorf("apply: %v", a)
	}
	h.audited(self, "uid="+strconv.Itoa(os.Geteuid()), `socket="control socket"`, "apply "+one, "result=done")
	h.followed("/v1/events", func(e api.Event) bool { return e.Kind == api.KindChange && strings.Contains(e.Text, "apply "+one) })
	wantVerdict := func(packet, want string) {
		t.Helper()
		if got := verdict(t, packet); got != want {
			t.Errorf("%s: %s, want %s", packet, got, want)
		}
	}
	wantVerdict("udp 198.51.100.1:9 > 192.0.2.1:1", "drop port1")

	a := h.change(200, "/v1/block", operate.BlockOrder{Prefixes: []string{"198.51.100.1", "198.51.100.8-198.51.100.11"}, For: "10m", Why: "test"})
	if v := values(t, a.body); v["changed"] != 2.0 || v["entries"] != 2.0 || v["refused"] != 0.0 {
		t.Errorf("block: %v", a)
	}
	wantVerdict("udp 198.51.100.1:9 > 192.0.2.1:9", "drop listed")
	h.audited(self, "block 198.51.100.1 198.51.100.8-198.51.100.11 for 10m why test")
	if scrape := h.must(200, readSocket, "/v1/metrics").body; !strings.Contains(scrape, `floodwall_bans_total{origin="manual"} 2`) {
		t.Error("the bans are not counted")
	}
	h.change(200, "/v1/unblock", operate.UnblockOrder{Prefixes: []string{"198.51.100.1"}})
	wantVerdict("udp 198.51.100.1:9 > 192.0.2.1:9", "pass default")
	h.change(http.StatusConflict, "/v1/unblock", operate.UnblockOrder{Prefixes: []string{"198.51.100.1"}})
	for _, bad := range []operate.BlockOrder{{}, {Prefixes: []string{"198.51.100.2", "x"}}, {Prefixes: []string{"198.51.100.2"}, For: "5"}} {
		h.change(http.StatusBadRequest, "/v1/block", bad)
	}
	wantVerdict("udp 198.51.100.2:9 > 192.0.2.1:9", "pass default")
	said := inSession(t, "/v1/block", operate.BlockOrder{Prefixes: []string{"203.0.113.0/24"}})
	if !strings.Contains(said, "where this SSH session comes from") || !strings.HasSuffix(said, "400") {
		t.Errorf("a block of who asks: %s", said)
	}

	all := operate.BlockOrder{Prefixes: []string{"0.0.0.0/0"}}
	if a := h.change(http.StatusConflict, "/v1/block", all); !strings.Contains(a.body, "not blocked") || !strings.Contains(a.body, `\"force\": true`) {
		t.Errorf("a block of all, this host too: %v", a)
	}
	wantVerdict("udp 198.51.100.2:9 > 192.0.2.1:9", "pass default")
	all.Force = true
	h.change(200, "/v1/block", all)
	wantVerdict("udp 198.51.100.2:9 > 192.0.2.1:9", "drop listed")
	h.change(200, "/v1/unblock", operate.UnblockOrder{Prefixes: all.Prefixes})

	a = h.change(200, "/v1/apply", operate.Order{Policy: two, Confirm: "60s"})
	if v := values(t, a.body); v["returns_to"] != 1.0 {
		t.Errorf("apply on trial: %v", a)
	}
	if health := values(t, h.must(200, readSocket, "/v1/health").body); health["trial"] == nil {
		t.Errorf("health on trial: %v", health)
	}
	wantVerdict("udp 198.51.100.1:9 > 192.0.2.1:2", "drop port2")
	h.change(200, "/v1/rollback", api.Nothing{})
	wantVerdict("udp 198.51.100.1:9 > 192.0.2.1:1", "drop port1")
	h.change(http.StatusConflict, "/v1/confirm", api.Nothing{})
	h.audited("what=confirm", "result=\"failed: ")
	h.change(200, "/v1/apply", operate.Order{Policy: two, Confirm: "60s"})
	h.change(200, "/v1/confirm", api.Nothing{})
	wantVerdict("udp 198.51.100.1:9 > 192.0.2.1:2", "drop port2")
	if out := mustFloodwall(t, "status"); strings.Contains(out, "on trial") {
		t.Errorf("after the confirmation:\n%s", out)
	}
}

// TestAPIRefusals sends orders that must change nothing: policies with errors, missing policies, and policies that cut the client's session.
func TestAPIRefusals(t *testing.T) {
	if !inside(t) {
		return
	}
	one := drops(t, 1)
	mustFloodwall(t, "apply", one)
	h := startDaemon(t)
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	broken := write("devices: [fw0]\ndefault: maybe\nchecks: none\n")
	a := h.change(http.StatusUnprocessableEntity, "/v1/apply", operate.Order{Policy: broken})
	v := values(t, a.body)
	if v["where"] != broken+":2:10" || len(v["more"].([]any)) != 1 {
		t.Errorf("a policy with two mistakes: %v", a)
	}
	cutting := write("devices: [fw0]\ndefault: drop\nchecks: off\n")
	for _, row := range []struct {
		order  operate.Order
		status int
		say    string
	}{
		{operate.Order{Policy: "policy.yaml"}, 400, "absolute"},
		{operate.Order{Policy: "/dev/zero"}, 400, "not a regular file"},
		{operate.Order{Policy: "/none/policy.yaml"}, 404, "no such file"},
		{operate.Order{Policy: one, Confirm: "1s"}, 400, "2s to 24h"},
		{operate.Order{Policy: one, Devices: []string{"none0"}}, 500, "none0"},
	} {
		if a := h.change(row.status, "/v1/apply", row.order); !strings.Contains(a.body, row.say) {
			t.Errorf("%+v: %v, want %q", row.order, a, row.say)
		}
	}
	said := inSession(t, "/v1/apply", operate.Order{Policy: cutting})
	if !strings.Contains(said, "would drop this session") || !strings.HasSuffix(said, "409") {
		t.Errorf("a policy that cuts who asks: %s", said)
	}
	if out := mustFloodwall(t, "status"); !strings.Contains(out, "generation 1,") {
		t.Errorf("one of the orders changed the policy:\n%s", out)
	}
}

// TestUnknownSession uses a daemon that may not inspect its clients' processes. It must apply nothing without a trial.
func TestUnknownSession(t *testing.T) {
	if !inside(t) {
		return
	}
	os.Unsetenv("SSH_CONNECTION") // the daemon could read it from a process of its own user
	u := newUser(t, 1234, unitRights)
	if err := os.Chown("/run/floodwall", u.uid, u.uid); err != nil {
		t.Fatal(err)
	}
	daemon := u.command("daemon")
	said := new(lines)
	daemon.Stdout, daemon.Stderr = said, said
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer daemon.Wait()
	defer daemon.Process.Signal(unix.SIGTERM)
	waitFor(t, "the sockets", func() bool { return strings.Contains(said.String(), "serving") })
	ask := func(path, body string) string {
		out, _ := exec.Command("setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "--inh-caps=-all", "--ambient-caps=-all",
			"--bounding-set=-all", "curl", "-s", "--unix-socket", controlSocket, "-d", body, "-H", "Content-Type: application/json",
			"http://floodwall/v1/"+path).CombinedOutput()
		return string(out)
	}
	policy := u.policy("fw0", 1)
	for _, row := range []struct{ path, body, want string }{
		{"apply", fmt.Sprintf(`{"policy": %q}`, policy), "may not see whether an SSH session asks"},
		{"apply", fmt.Sprintf(`{"policy": %q, "confirm": "60s"}`, policy), `"confirm_within": `},
		{"block", `{"prefixes": ["192.0.2.0/25"]}`, `192.0.2.0/25 has in it 192.0.2.1, an address of this host`},
		{"block", `{"prefixes": ["198.51.100.1", "192.0.2.0-192.0.2.2"]}`, `192.0.2.1, an address of this host`},
		{"block", `{"prefixes": ["192.0.2.7"]}`, `"changed": 1,`},
		{"block", `{"prefixes": ["192.0.2.1"], "force": true}`, `"changed": 1,`},
	} {
		if out := ask(row.path, row.body); !strings.Contains(out, row.want) {
			t.Errorf("POST /v1/%s %s: %s, want %s", row.path, row.body, out, row.want)
		}
	}
	got, err := u.run("blocked")
	if err != nil {
		t.Errorf("blocked: %v", err)
	}
	for prefix, want := range map[string]bool{"198.51.100.1": true, "192.0.2.7": true, "192.0.2.1": true, "192.0.2.0": false, "192.0.2.2": false} {
		if strings.Contains(got, prefix+" ") != want {
			t.Errorf("%s is blocked: want %t in\n%s", prefix, want, got)
		}
	}
	u.must("unloaded", "unload")
}

// TestAPIUnsaved makes changes while the policy cannot be saved for the next boot. The changes must be made. The answer and the audit log must say
// that saving failed.
func TestAPIUnsaved(t *testing.T) {
	if !inside(t) {
		return
	}
	state := filepath.Join(t.TempDir(), "state")
	saved := filepath.Join(state, "boot")
	err := os.MkdirAll(saved, 0o700)
	if err := errors.Join(err, os.Symlink("c0123456789abcdef", filepath.Join(saved, "current"))); err != nil { // so applies are saved
		t.Fatal(err)
	}
	h := startDaemon(t, "--state", state)
	one, two := operate.Order{Policy: drops(t, 1)}, operate.Order{Policy: drops(t, 2)}
	h.change(200, "/v1/apply", one)
	two.Confirm = "60s"
	h.change(200, "/v1/apply", two)
	trial := filepath.Join(saved, "trial")
	if err := errors.Join(os.Remove(trial), os.MkdirAll(filepath.Join(trial, "full"), 0o700)); err != nil { // a directory in place of a link
		t.Fatal(err)
	}
	for _, row := range []struct {
		path, audit, verdict string
		body                 any
	}{
		{"confirm", "what=confirm", "drop port2", api.Nothing{}},
		{"rollback", "what=rollback", "drop port1", api.Nothing{}},
		{"apply", "apply " + two.Policy, "drop port2", operate.Order{Policy: two.Policy}},
	} {
		a, err := post(controlSocket, "/v1/"+row.path, row.body)
		if err != nil || a.status != 200 || values(t, a.body)["problems"] == nil || values(t, a.body)["generation"] == nil {
			t.Errorf("%s: %v, %v, want status 200 with the generation and problems", row.path, a, err)
			continue
		}
		h.audited(row.audit, "done, but ")
		if got := verdict(t, "udp 198.51.100.1:9 > 192.0.2.1:"+row.verdict[len(row.verdict)-1:]); got != row.verdict {
			t.Errorf("after %s: %s, want %s", row.path, got, row.verdict)
		}
	}
}
