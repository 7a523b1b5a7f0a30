// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/policy"
)

// TestAffects checks which new and which removed entries can cost an SSH session packets, so that the edit is on trial.
func TestAffects(t *testing.T) {
	t.Parallel()
	session := facts.Session{Client: netip.MustParseAddrPort("203.0.113.5:50000"), Server: netip.MustParseAddrPort("192.0.2.1:22")}
	for _, row := range []struct {
		list, entry    string
		added, removed bool
	}{
		{"services", "{name: it, port: tcp/22}", false, true},
		{"services", "{name: it, port: tcp/22, from: 192.0.2.9}", true, true},
		{"services", "{name: it, port: ssh}", false, true},
		{"services", "{name: it, port: udp/22}", false, false},
		{"services", "{name: it, port: tcp/80, from: 192.0.2.9}", false, false},
		{"rules", "{name: it, port: 20-30, then: drop}", true, false},
		{"rules", "{name: it, from: 203.0.113.0/24, then: drop}", true, false},
		{"rules", "{name: it, from: 203.0.113.0/24, then: pass}", false, true},
		{"rules", "{name: it, from: 203.0.113.0/24, proto: udp, then: drop}", false, false},
		{"rules", "{name: it, from: 198.51.100.0/24, then: drop}", false, false},
		{"rules", "{name: it, from: $us, port: tcp/22, then: reject}", true, false},
		{"rules", "{name: it, port: tcp/25, then: drop}", false, false},
	} {
		p, err := policy.Parse("policy.yaml", []byte("devices: [eth0]\nsets: {us: [203.0.113.5]}\n"+row.list+":\n  - "+row.entry+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if added, removed := affects(p, "it", session, false), affects(p, "it", session, true); added != row.added || removed != row.removed {
			t.Errorf("%s: added %v, removed %v", row.entry, added, removed)
		}
	}
}
