// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"testing"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestFloodKey has programs at the port of WireGuard and at other ports, in a network namespace without a WireGuard device.
func TestFloodKey(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	for _, c := range []struct {
		port    uint16
		program string
		want    string
		why     bool
	}{
		{51820, "wireguard-go", "udp: {protect: wireguard}", false},
		{51820, "boringtun-cli", "udp: {protect: wireguard}", false},
		{51820, "amneziawg-go", "udp: protect", true},
		{51820, "", "udp: protect", true}, // a kernel module other than that of WireGuard
		{443, "", "udp: {protect: quic}", false},
		{7000, "game", "udp: protect", false},
	} {
		if key, why := facts.FloodKey(c.port, c.program); key != c.want || (why != "") != c.why {
			t.Errorf("port %d of %q: %s (%s), want %s", c.port, c.program, key, why, c.want)
		}
	}
}
