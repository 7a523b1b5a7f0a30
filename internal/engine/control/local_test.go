// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestOwnAddresses checks that `local` and the check own-source match the addresses of the devices.
func TestOwnAddresses(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.apply("checks: {own-source: on}\nrules: [{name: here, to: local, then: drop}]")
	for _, c := range []struct{ packet, want string }{
		{"udp 198.51.100.1:5 > 192.0.2.1:9", "drop here"},
		{"udp 198.51.100.1:5 > 192.0.2.2:9", "pass default"},
		{"udp [2001:db8:9::1]:5 > [2001:db8::1]:9", "drop here"},
		{"udp 192.0.2.1:5 > 198.51.100.1:9", "drop own-source"},
		{"udp [2001:db8::1]:5 > [2001:db8:9::1]:9", "drop own-source"},
	} {
		if got := h.ask(c.packet); got != c.want {
			t.Errorf("%s: %s, want %s", c.packet, got, c.want)
		}
	}
}

// TestLocalRoutes adds routes of type local, like `ip route add local`. In XDP, `local` must match the same addresses as in netfilter, which looks
// them up in the routing table. Without a daemon, `repair` must add a new route. It must also work with 5,000 addresses.
func TestLocalRoutes(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.ip("route add local 198.18.0.0/24 dev lo", "-6 route add local 2001:db8:7::/64 dev lo",
		"route add local 0.0.0.0/0 dev lo table 1001")
	const policy = "checks: {own-source: on}\nrules: [{name: here, to: local, then: drop}]"
	h.apply(policy)
	asks := func(when, want string, packets ...string) {
		t.Helper()
		for _, p := range packets {
			if got := h.ask(p); got != want {
				t.Errorf("%s: %s: %s, want %s", when, p, got, want)
			}
		}
	}
	asks("applied", "drop here", "udp 198.51.100.1:5 > 198.18.0.77:9", "udp [2001:db8:9::1]:5 > [2001:db8:7::9]:9", "udp 198.51.100.1:5 > 192.0.2.1:9")
	asks("applied", "drop own-source", "udp 198.18.0.77:5 > 198.51.100.1:9")
	asks("applied", "pass default", "udp 198.51.100.1:5 > 198.18.1.1:9", "udp [2001:db8:9::1]:5 > [2001:db8:8::9]:9")
	h.ip("route del local 198.18.0.0/24 dev lo", "route add local 198.18.1.0/24 dev lo")
	if r, err := h.Repair(t.Context()); err != nil || r.Local < 2 {
		t.Errorf("repair: %+v, %v, want one prefix less and one more, or the address of a device that has come meanwhile, too", r, err)
	}
	asks("changed", "drop here", "udp 198.51.100.1:5 > 198.18.1.1:9")
	asks("changed", "pass default", "udp 198.51.100.1:5 > 198.18.0.77:9")

	w := h.watch()
	defer w.stop()
	var lines strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&lines, "addr add 10.96.%d.%d/32 dev lo\n", i>>8, i&255)
	}
	batch := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(batch, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	h.run("ip", "-batch", batch)
	for _, to := range []string{"10.96.0.0", "10.96.15.255", "10.96.16.0", "10.96.19.135"} {
		if !testutil.Eventually(slow, func() bool { return h.ask("udp 198.51.100.1:5 > "+to+":9") == "drop here" }) {
			t.Errorf("the program does not know %s", to)
		}
	}
	h.apply(policy)
	asks("applied again", "drop here", "udp 198.51.100.1:5 > 10.96.19.135:9", "udp 198.51.100.1:5 > 198.18.1.1:9")
}

// TestOwnAddressesAfterRollback adds an address to the host while another policy runs. The policy that returns must know the address.
func TestOwnAddressesAfterRollback(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.apply("rules: [{name: here, to: local, then: drop}]")
	h.apply("rules: [{name: none, port: udp/9999, then: drop}]")
	h.ip("addr add 192.0.2.77/24 dev fw0")
	if _, err := h.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"192.0.2.77", "192.0.2.1"} {
		if got := h.ask("udp 198.51.100.1:5 > " + to + ":9"); got != "drop here" {
			t.Errorf("a packet to %s after the rollback: %s, want drop here", to, got)
		}
	}
}
