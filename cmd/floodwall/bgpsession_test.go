// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestBGPSessionFails makes a session with BIRD fail: first by a wrong password, then by packets from one hop further away than the policy allows.
// The status must name the settings to check, and must count no announcement. With the right settings, the announcements must be sent.
func TestBGPSessionFails(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	s, key, file := newSpeakerProcess(t, "a wrong word")
	router := newUpstreamRouter(t, "a secret word")
	text := fmt.Sprintf(upstreamPolicy, true, key)
	apply := func(text string) { writeFile(t, file, text); mustFloodwall(t, "apply", file) }
	apply(text)
	t.Cleanup(func() { mustFloodwall(t, "unload") })
	s.start()
	t.Cleanup(s.kill)
	startDaemon(t, "--bgp", s.run)
	established := func() bool { _, code := s.floodwall("status"); return code == 0 }
	fails := func(want string) func() bool {
		return func() bool { out, code := s.floodwall("status"); return code == 1 && strings.Contains(out, want) }
	}
	waitFor(t, "the status says that the session fails, and what to look at", fails("does not answer: see address, password_file, ttl_security"))
	s.says(0, "to nobody yet", "announce", "192.0.2.8", "--rtbh", "--for", "1h")
	if out := router.table(); strings.Contains(out, "192.0.2.8/32") {
		t.Errorf("the router has a route without a session:\n%s", out)
	}
	metric := func(line string) func() bool {
		return func() bool {
			a, err := get(readSocket, "/v1/metrics")
			return err == nil && strings.Contains(a.body, "\n"+line+"\n")
		}
	}
	waitFor(t, "the metrics have the session", metric(`floodwall_bgp_session_up{router="1"} 0`))
	if metric(`floodwall_bgp_announcements{kind="rtbh"} 1`)() {
		t.Error("an announcement counts that no router has")
	}

	writeFile(t, key, "a secret word\n")
	apply(text)
	waitFor(t, "the session is established with the right password", established)
	router.has("192.0.2.8/32", true)
	waitFor(t, "the metrics have the announcement", metric(`floodwall_bgp_announcements{kind="rtbh"} 1`))

	lost := func() bool { out, _ := s.floodwall("status", "--json"); return strings.Contains(out, `"lost":`) }
	if lost() {
		t.Error("the status says that a session was lost that never was")
	}
	far := "nft 'add table ip far; add chain ip far out { type filter hook output priority 0; }; add rule ip far out tcp sport 179 ip ttl set 254'"
	router.ns.Do(func() {
		if out, err := exec.Command("sh", "-c", far).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	waitFor(t, "the session fails when packets have come too far", fails("ttl_security"))
	if !lost() {
		t.Error("the status does not say when the session was lost")
	}
	apply(strings.Replace(text, "ttl_security: 1", "ttl_security: 2", 1))
	waitFor(t, "the session is established with one hop more", established)
	router.has("192.0.2.8/32", true)
}

// TestNextHopOffLink announces black holes to BIRD. Their next hop is first on no link of BIRD, so BIRD refuses the routes. Then the next hop is on
// the link. The status and the metrics must count only routes that BIRD has.
func TestNextHopOffLink(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	s, key, file := newSpeakerProcess(t, "a secret word")
	router := newUpstreamRouter(t, "a secret word")
	hop := func(address string) string {
		return strings.Replace(fmt.Sprintf(upstreamPolicy, true, key), `next_hop: "2001:db8::1"`, `next_hop: ["2001:db8::1", `+address+"]", 1)
	}
	apply := func(text string) { writeFile(t, file, text); mustFloodwall(t, "apply", file) }
	apply(hop("203.0.113.66"))
	t.Cleanup(func() { mustFloodwall(t, "unload") })
	s.start()
	t.Cleanup(s.kill)
	startDaemon(t, "--bgp", s.run)
	says := func(want ...string) func() bool {
		return func() bool {
			out, code := s.floodwall("status")
			metrics, err := get(readSocket, "/v1/metrics")
			for _, text := range want {
				if code != 0 || err != nil || !strings.Contains(out+metrics.body, text) {
					return false
				}
			}
			return true
		}
	}
	waitFor(t, "the session is established", says("established"))
	s.floodwall("announce", "192.0.2.8", "--rtbh", "--for", "1h")
	s.floodwall("announce", "2001:db8::8", "--rtbh", "--for", "1h")
	router.has("2001:db8::8/128", true)
	waitFor(t, "the status names the next hop, and counts one route", says("refused by 192.0.2.254",
		"black holes do not count as announced to 192.0.2.254: their next hop, 203.0.113.66, is not on the link", "have the router set its own",
		"\nfloodwall_bgp_announcements{kind=\"rtbh\"} 1\n"))
	if out := router.table(); strings.Contains(out, "192.0.2.8/32") {
		t.Errorf("the router takes the next hop:\n%s", out)
	}
	apply(hop("192.0.2.1"))
	router.has("192.0.2.8/32", true)
	waitFor(t, "the status counts both routes", says("\nfloodwall_bgp_announcements{kind=\"rtbh\"} 2\n"))
	if out, _ := s.floodwall("status"); strings.Contains(out, "refused") {
		t.Errorf("a next hop on the link is doubted:\n%s", out)
	}
}
