// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/daemon/api"
)

// someone is a user of the host without any capability.
type someone struct {
	name  string
	group string // a second group, besides the user's own
}

// memberGroup is the ID of the group floodwall in these tests.
const memberGroup = "4321"

// withGroup gives the host the group floodwall, for the rest of the test.
func withGroup(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "group")
	text, err := os.ReadFile("/etc/group")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, "floodwall:x:"+memberGroup+":\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(file, "/etc/group", "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("covering /etc/group: %v", err)
	}
	t.Cleanup(func() { unix.Unmount("/etc/group", unix.MNT_DETACH) })
}

// asks sends a request as a user. It returns the body and the HTTP status. The status is 0 if the user cannot connect.
func (s someone) asks(t *testing.T, socket, method, path string) (status int, body string) {
	t.Helper()
	args := []string{"--reuid=12345", "--regid=12345", "--clear-groups", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"}
	if s.group != "" {
		args[2] = "--groups=" + s.group
	}
	args = append(args, "curl", "--silent", "--max-time", "50", "--unix-socket", socket, "--request", method, "--write-out", "\n%{http_code}",
		"http://floodwall"+path)
	if method == http.MethodPost {
		args = append(args, "--header", "Content-Type: application/json", "--data", "[]")
	}
	out, _ := exec.Command("setpriv", args...).Output()
	return statusOf(out)
}

// statusOf parses the output of curl, whose last line is the status. The status is 0 if there was no answer.
func statusOf(out []byte) (status int, body string) {
	end := strings.LastIndex(string(out), "\n") + 1
	fmt.Sscan(string(out[end:]), &status)
	return status, string(out[:end])
}

// questionOf returns a request for a route. Even if the user may send this request, the request changes nothing and ends at once.
func questionOf(r api.Route) (method, path string) {
	path = strings.ReplaceAll(r.Path, "{name}", "bans")
	if r.Type == "text/event-stream" {
		path += "?after=none"
	}
	if slices.ContainsFunc(r.Query, func(p api.Parameter) bool { return p.Name == "for" }) {
		path += "?for=100ms"
	}
	return r.Method, "/v1" + path
}

// questionBody returns the body for a request of questionOf. The body is valid JSON that no route accepts.
func questionBody(method string) []byte {
	if method == http.MethodPost {
		return []byte("[]")
	}
	return nil
}

// TestAuthorisation sends a request to every route as root, as a member of the group floodwall and as another user, on both sockets.
func TestAuthorisation(t *testing.T) {
	if !inside(t) {
		return
	}
	withGroup(t)
	h := startDaemon(t)
	for socket, want := range map[string]string{readSocket: "srw-rw----", controlSocket: "srw-------"} {
		if info, err := os.Stat(socket); err != nil || info.Mode().String() != strings.Replace(want, "s", "S", 1) {
			t.Errorf("%s: %v, %v, want %s", socket, info.Mode(), err, want)
		}
	}
	member, other := someone{"a member", memberGroup}, someone{"somebody else", ""}
	for _, r := range api.Routes() {
		method, path := questionOf(r)
		for _, socket := range []string{readSocket, controlSocket} {
			own, err := request(client(socket), method, path, questionBody(method))
			if err != nil {
				t.Fatalf("%s %s on %s: %v", method, path, socket, err)
			}
			wantForbidden := socket == readSocket && r.Access == api.Change
			if (own.status == http.StatusForbidden) != wantForbidden {
				t.Errorf("%s %s as root on %s: %v", method, path, socket, own)
			}
			if wantForbidden && !strings.Contains(own.body, "control.sock") {
				t.Errorf("%s %s on the read socket: no hint in %v", method, path, own)
			}
			status, said := member.asks(t, socket, method, path)
			if want := own.status; socket == readSocket && status != want || socket == controlSocket && status != 0 {
				t.Errorf("%s %s as a member on %s: %d, want %d (0 on the control socket): %s", method, path, socket, status, want, said)
			}
			if status, said := other.asks(t, socket, method, path); status != 0 {
				t.Errorf("%s %s as somebody else on %s: %d %s", method, path, socket, status, said)
			}
		}
	}
	if err := os.Chmod(controlSocket, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, r := range api.Routes() {
		method, path := questionOf(r)
		if status, body := other.asks(t, controlSocket, method, path); status != http.StatusForbidden {
			t.Errorf("%s %s by user 12345 on a control socket that everybody may open: %d %s", method, path, status, body)
		}
	}
	h.must(http.StatusNotFound, readSocket, "/v1/none")
	h.must(http.StatusMethodNotAllowed, readSocket, "/v1/explain")
}

// TestSlowClients opens three kinds of connections: some send nothing, some send half a request, and some send many requests and read no answer. It
// opens more of them than the socket allows. Other clients must get answers all the time, on both sockets.
func TestSlowClients(t *testing.T) {
	if !inside(t) {
		return
	}
	mustFloodwall(t, "apply", drops(t, 7))
	startDaemon(t)
	for _, says := range []string{"", "GET /v1/status HTTP/1.1\r\nHost: x\r\nX: ",
		"POST /v1/explain HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n{",
		"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", 50)} {
		var open []net.Conn
		for range 100 {
			c, err := net.Dial("unix", readSocket)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
			io.WriteString(c, says)
		}
		if a, err := get(controlSocket, "/v1/health"); err != nil || a.status != 200 {
			t.Errorf("the control socket beside 100 clients that say %.30q: %v %v", says, a, err)
		}
		waitFor(t, fmt.Sprintf("an answer beside 100 clients that say %.30q", says), func() bool {
			a, err := get(readSocket, "/v1/health")
			return err == nil && a.status == 200
		})
		for _, c := range open {
			c.Close()
		}
	}
	if !strings.Contains(mustFloodwall(t, "status"), "generation 1") {
		t.Error("the policy is not in force")
	}
	waitFor(t, "an answer after all of them", func() bool { // the last ones may hold all places for a moment
		a, err := get(readSocket, "/v1/status")
		return err == nil && a.status == 200
	})
}

// TestSocketWithUnitRights starts the daemon with the capabilities of its systemd unit. If the daemon is in the group floodwall, it must give its
// socket to the group. If it is not, it must warn and serve only root.
func TestSocketWithUnitRights(t *testing.T) {
	if !inside(t) {
		return
	}
	withGroup(t)
	u := newUser(t, 1234, unitRights)
	if err := os.Chown("/run/floodwall", u.uid, u.uid); err != nil {
		t.Fatal(err)
	}
	for group, want := range map[string]int{memberGroup: 4321, "": 1234} {
		daemon := u.command("daemon")
		if group != "" {
			daemon.Args[slices.Index(daemon.Args, "--clear-groups")] = "--groups=" + group
		}
		said := new(lines)
		daemon.Stdout, daemon.Stderr = said, said
		if err := daemon.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the sockets", func() bool { return strings.Contains(said.String(), "serving") })
		info, err := os.Stat(readSocket)
		if err != nil {
			t.Fatal(err)
		}
		if got := int(info.Sys().(*syscall.Stat_t).Gid); got != want {
			t.Errorf("in group %q: the socket is of group %d, want %d", group, got, want)
		}
		if warned := strings.Contains(said.String(), "warning: read.sock stays root's"); warned != (group == "") {
			t.Errorf("in group %q the daemon said:\n%s", group, said)
		}
		daemon.Process.Signal(unix.SIGTERM)
		daemon.Wait()
	}
}
