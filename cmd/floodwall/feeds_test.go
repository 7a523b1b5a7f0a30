// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// feedHost is a host whose policy uses two lists: one from a server that can be down, and the list of a country.
type feedHost struct {
	*bootHost
	body   atomic.Value // string; "" is down
	url    string
	target string
}

func newFeedHost(t *testing.T, target string) *feedHost {
	h := &feedHost{bootHost: newBootHost(t), target: target}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if body := h.body.Load().(string); body != "" {
			io.WriteString(w, body)
		} else {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	h.url = server.URL + "/list?key=" + listKey
	h.body.Store("")
	h.country("8.8.8.0/24")
	h.write("policy.yaml", fmt.Sprintf(`devices: [fw0]
never: [9.9.9.100]
sets:
  drop: {url: %q, every: 1h}
  far: {country: XX, db: geo.mmdb}
rules:
  - {name: listed, from: $drop, then: drop}
  - {name: far, from: $far, then: drop}
`, h.url))
	return h
}

func (h *feedHost) country(prefix string) {
	h.t.Helper()
	if err := testutil.Write(filepath.Join(h.files, "geo.mmdb"), testutil.Network{Prefix: prefix, Country: "XX"}); err != nil {
		h.t.Fatal(err)
	}
}

// listKey is a secret in the URL of the list. No command may print it, because other users of the host may see the output.
const listKey = "sesame"

// says runs a command and checks that its output contains all the texts.
func (h *feedHost) says(ok bool, command string, texts ...string) {
	h.t.Helper()
	out, err := h.run(strings.Fields(strings.ReplaceAll(command, "POLICY", filepath.Join(h.files, "policy.yaml")))...)
	if (err == nil) != ok {
		h.t.Fatalf("floodwall %s: %v\n%s", command, err, out)
	}
	if strings.Contains(out, listKey) {
		h.t.Errorf("floodwall %s prints the key in the URL of the list:\n%s", command, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			h.t.Errorf("floodwall %s does not print %q, but\n%s", command, text, out)
		}
	}
}

// drops checks for each source whether the kernel drops its packets.
func (h *feedHost) drops(when string, want map[string]bool) {
	h.t.Helper()
	for from, drop := range want {
		if got := verdict(h.t, "udp "+from+":5 > 192.0.2.1:9"); strings.HasPrefix(got, "drop") != drop {
			h.t.Errorf("%s: a packet from %s: %s", when, from, got)
		}
	}
}

// TestFeeds uses a list from the first fetch to a reboot. It checks the output of commands and the verdicts of the kernel.
func TestFeeds(t *testing.T) {
	if !inside(t) {
		return
	}
	h := newFeedHost(t, "xdp")
	h.says(true, "check POLICY", `set "drop" is empty here: there is no copy of its list`, "fetched over http")
	h.says(false, "apply POLICY", "policy.yaml:4:3", `set "drop"`, "503", "there is no earlier copy", "hint: mend the address or the server")
	h.says(false, "status", "nothing is loaded")
	for _, command := range []string{"feeds", "feeds --json", "feeds refresh", "feeds accept drop"} {
		h.says(false, command, "nothing is loaded")
	}
	h.body.Store("9.9.9.1\n9.9.9.2\n9.9.9.3\n10.1.2.3\n192.0.2.0/24\n9.9.9.100\n9.9.10.0/24\n9.9.11.1\n9.9.11.3\n")
	h.says(true, "apply --dry-run POLICY", `set "drop" is empty here`)
	h.says(true, "apply --boot POLICY", "applied generation 1", `set "drop" has the 6 entries that were fetched just now`,
		`set "drop" is without 9.9.9.100 (never)`, "while `floodwall daemon` does not run")
	h.drops("at first", map[string]bool{"9.9.9.1": true, "9.9.9.100": false, "9.9.9.4": false, "8.8.8.8": true, "8.8.4.4": false})
	h.says(true, "feeds", "10.1.2.3 and 1 more (not routed on the Internet), 9.9.9.100 (never)", "XX of "+h.files+"/geo.mmdb")
	h.says(true, "feeds --json", `"state": "ok"`, `"why": "never"`)
	h.says(true, "check POLICY", `set "drop" has the 6 entries`)

	h.body.Store(h.body.Load().(string) + "9.9.9.4\n")
	h.says(true, "feeds refresh drop", "drop: changed: 6 entries in force, 5 before")
	h.drops("refreshed", map[string]bool{"9.9.9.1": true, "9.9.9.4": true, "9.9.9.100": false})
	h.says(true, "status", "generation 1,")

	h.body.Store("9.9.9.9\n")
	h.says(true, "feeds refresh", "drop: held")
	h.says(true, "feeds", "held", "it has 1 entries and had 7: less than 50%", "`floodwall feeds accept drop` takes the list of 1 entry")
	h.says(true, "status", `set "drop": a new list is held`)
	h.drops("while a list is held", map[string]bool{"9.9.9.1": true, "9.9.9.9": false})
	h.says(false, "feeds accept other", "the policy that runs has no such set with url", "hint: `floodwall feeds` lists those that there are")
	h.says(true, "feeds accept drop", "drop: changed: 1 entry in force, 6 before")
	h.says(false, "feeds accept drop", "no list is held", "hint: `floodwall feeds` shows which lists are held; one that was accepted is in force")
	h.drops("accepted", map[string]bool{"9.9.9.1": false, "9.9.9.9": true})

	h.body.Store("10.1.2.3\n192.168.0.0/16\n") // no entry of this list is usable, so there is nothing to accept
	h.says(false, "feeds refresh", "nothing is left of the list")
	h.says(false, "feeds accept drop", "no list is held")
	h.body.Store("<html>")
	h.says(false, "feeds refresh", "HTML")
	h.says(true, "feeds", "failing")
	h.drops("after a failure", map[string]bool{"9.9.9.9": true})

	// The daemon must fetch lists that are due, and read a database that has changed.
	daemon := startDaemon(t, "--state", h.state)
	states, err := filepath.Glob(h.state + "/feeds/*/state")
	if err != nil || len(states) != 1 {
		t.Fatal(states, err)
	}
	h.body.Store("9.9.9.8\n")
	h.country("8.8.4.0/24")
	if err := os.Remove(states[0]); err != nil {
		t.Fatal(err)
	}
	exchanged := func() bool {
		return strings.HasPrefix(verdict(t, "udp 9.9.9.8:5 > 192.0.2.1:9"), "drop") && strings.HasPrefix(verdict(t, "udp 8.8.4.4:5 > 192.0.2.1:9"), "drop")
	}
	for end := time.Now().Add(time.Minute); !exchanged(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the daemon exchanges nothing")
		}
	}
	h.drops("exchanged by the daemon", map[string]bool{"9.9.9.9": false, "8.8.8.8": false})
	daemon.wantFeeds(h)
	daemon.kill()

	h.body.Store("") // a reboot takes the last good copy, as there is no network yet
	if out, err := h.reboot(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h.drops("after a reboot", map[string]bool{"9.9.9.8": true, "9.9.9.9": false})
	h.says(true, "unload")
}

// wantFeeds checks that the API gives the same answers and makes the same changes as the command.
func (h *apiHost) wantFeeds(f *feedHost) {
	h.Helper()
	said := h.must(200, readSocket, "/v1/feeds").body
	command, err := f.run("feeds", "--json")
	if err != nil || !strings.Contains(said, `"set": "drop"`) || !strings.Contains(command, `"entries": 1`) {
		h.Errorf("GET /v1/feeds: %s; feeds --json: %s, %v", said, command, err)
	}
	figures := h.must(200, readSocket, "/v1/metrics").body
	for _, want := range []string{`floodwall_feed_entries{set="drop"} 1`, `floodwall_feed_last_success_timestamp_seconds{set="drop"} 1`} {
		if !strings.Contains(figures, want) {
			h.Errorf("no %s in the metrics", want)
		}
	}
	if all := said + figures + h.said.String(); strings.Contains(all, listKey) {
		h.Errorf("the key in the URL of the list is in what the daemon says:\n%s", all)
	}
	f.body.Store("9.9.9.8\n9.9.9.6\n9.9.20.1\n9.9.21.1\n")
	for _, c := range []struct {
		path   string
		body   any
		status int
		says   string
	}{
		{"/v1/feeds/refresh", map[string]any{"sets": []string{"drop"}}, 200, `"drop": "held"`},
		{"/v1/feeds/accept", map[string]any{"set": "drop"}, 200, `"entries": 4`},
		{"/v1/feeds/accept", map[string]any{"set": "drop"}, 409, "no list is held"},
		{"/v1/feeds/accept", map[string]any{"set": "far"}, 404, "no such set"},
	} {
		if a, err := post(controlSocket, c.path, c.body); err != nil || a.status != c.status || !strings.Contains(a.body, c.says) {
			h.Errorf("POST %s %v: %v, %v, want %d and %s", c.path, c.body, a, err, c.status, c.says)
		}
	}
	f.drops("accepted by the API", map[string]bool{"9.9.9.6": true})
}

// TestKilledExchange kills the exchange of a list at a random moment. The kernel must then have the old list or the new list, in the same generation.
// The next exchange must work.
func TestKilledExchange(t *testing.T) {
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		t.Run(target, func(t *testing.T) {
			if inside(t) {
				killedExchange(newFeedHost(t, target))
			}
		})
	}
}

func killedExchange(h *feedHost) {
	t := h.t
	lists := []string{"9.9.9.1\n9.9.10.0/24\n", "9.9.9.2\n9.9.11.0/24\n"}
	h.body.Store(lists[0])
	h.says(true, "apply --target "+h.target+" POLICY")
	random := testutil.Random(t)
	for i := range testutil.Scaled(3, 100) {
		h.body.Store(lists[1-i%2])
		cmd := exec.Command("floodwall", "--state", h.state, "feeds", "refresh", "drop")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-after(random.IntN(150)):
			cmd.Process.Signal(syscall.SIGKILL)
			<-done
		}
		// What the victim had started may commit after the kill, and between the questions.
		if said := ""; !testutil.Eventually(filteredAgain, func() bool {
			old, next := verdict(t, "udp 9.9.9.1:5 > 192.0.2.1:9"), verdict(t, "udp 9.9.9.2:5 > 192.0.2.1:9")
			prefixOld, prefixNext := verdict(t, "udp 9.9.10.7:5 > 192.0.2.1:9"), verdict(t, "udp 9.9.11.7:5 > 192.0.2.1:9")
			said = fmt.Sprintf("%s, %s, %s, %s", old, next, prefixOld, prefixNext)
			return old != next && old == prefixOld && next == prefixNext
		}) {
			t.Fatalf("after a kill neither of the lists is in force: %s", said)
		}
		h.says(true, "feeds refresh drop")
		want := i%2 == 0
		h.drops("after the next exchange", map[string]bool{"9.9.9.1": !want, "9.9.10.7": !want, "9.9.9.2": want, "9.9.11.7": want})
	}
	h.says(true, "status", "generation 1,")
	left, err := filepath.Glob("/sys/fs/bpf/floodwall/renewal-*")
	if err != nil || left != nil {
		t.Errorf("left behind: %v %v", left, err)
	}
	h.says(true, "unload")
}

func after(milliseconds int) <-chan time.Time {
	return time.After(time.Duration(milliseconds) * time.Millisecond)
}
