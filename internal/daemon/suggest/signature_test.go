// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"net/netip"
	"testing"
)

// TestSignature checks which packets rules can match.
func TestSignature(t *testing.T) {
	t.Parallel()
	const udp = 1 << 16
	known := netip.MustParseAddr("203.0.113.7")
	for _, tt := range []struct {
		keys                string
		syn, fewPorts, from bool
		reaches, spares     uint32 // ports; 0: not checked
	}{
		{`port: tcp/443, flags: "syn/fin,syn,rst,psh,ack,urg", length: 52`, true, false, false, 443, 80},
		{`proto: tcp, length: 52, payload: {at: {offset: 20, bytes: "|02 04|", from: header}}`, true, false, false, 443, udp + 53},
		{`flags: "syn,ack/fin,syn,rst,psh,ack,urg", sport: [tcp/80, tcp/443]`, false, true, false, 443, udp + 53},
		{`sport: tcp/443, length: 52`, true, true, false, 22, udp + 22},
		{`flags: "ack/syn,ack", port: tcp/443`, false, false, false, 443, 444},
		{`flags: "cwr,ece,syn"`, true, false, false, 443, udp + 443},
		{`sport: udp/123, length: 468`, false, true, false, udp + 27015, 27015},
		{`sport: udp/1024-65535, port: udp/53`, false, false, false, udp + 53, udp + 54},
		{`from: [203.0.113.7, 203.0.113.8], proto: udp`, false, false, true, udp + 53, 53},
		{`from: 198.51.100.0/24, icmp: echo-request`, false, false, false, 0, udp + 53},
	} {
		s, _, err := ReadSignature("{name: x, " + tt.keys + ", then: drop}")
		if err != nil {
			t.Fatal(err)
		}
		if s.MatchesSYN() != tt.syn || s.FromFewPorts() != tt.fewPorts || s.From(known) != tt.from {
			t.Errorf("%s: SYN %t, few ports %t, from %t", tt.keys, s.MatchesSYN(), s.FromFewPorts(), s.From(known))
		}
		if tt.reaches != 0 && !s.ReachesPort(tt.reaches) || s.ReachesPort(tt.spares) {
			t.Errorf("%s: reaches %d: %t, reaches %d: %t", tt.keys, tt.reaches, s.ReachesPort(tt.reaches), tt.spares, s.ReachesPort(tt.spares))
		}
	}
}
