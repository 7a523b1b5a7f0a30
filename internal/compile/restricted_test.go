// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// TestRestrictedServices checks services that are restricted to some sources, with each kind of protection. They must refuse all other sources as if
// there were no protection, whatever the state of floods, limits and proofs is.
func TestRestrictedServices(t *testing.T) {
	const udp, syn, guard = "port: udp/7, udp: {protect: %s}", "port: tcp/7, syn: {mode: %s}", "port: udp/7, guard: %s"
	for _, service := range []string{
		"port: tcp/7", "port: 7", fmt.Sprintf(syn, "host"), fmt.Sprintf(syn, "router"), "port: 7, syn: {mode: host}", fmt.Sprintf(guard, "dns"),
		fmt.Sprintf(udp, "generic"), fmt.Sprintf(udp, "wireguard"), fmt.Sprintf(udp, "quic"), fmt.Sprintf(udp, "a2s"), fmt.Sprintf(udp, "raknet"),
	} {
		s := subject.Lower(t, "services: [{name: some, from: [203.0.113.0/24, '2001:db8::/32'], "+service+"}]\ndefault: pass\n")
		if s.HasLocal() {
			s.Insert(t, "local", "192.0.2.1/32 2001:db8:2::1/128")
		}
		for _, yes := range []bool{true, false} {
			answer := func(int, *packet.Packet) bool { return yes }
			w := ir.World{Member: s.Has, Over: answer, Proved: answer, Proves: answer, Served: answer, Calm: answer, Spent: answer,
				Known: func(*packet.Packet) bool { return yes }, Unanswered: func(*packet.Packet) bool { return yes }}
			for _, to := range []string{"198.51.100.9:5 > 192.0.2.1:7", "198.51.100.9:5 > 192.0.2.2:7", "[2606::9]:5 > [2001:db8:2::1]:7"} {
				for _, line := range []string{"tcp " + to + " S", "tcp " + to + " .", "udp " + to} {
					pkt := subject.FramesOf(t, line)[0].Packet()
					verdict, reason := s.Program.Eval(&pkt, w)
					got, want := verdict.String()+" "+s.Program.ReasonName(reason), "drop some:others"
					if !offered(s, &pkt) {
						want = "pass default"
					}
					if got != want {
						t.Errorf("{%s}: %s: %s, want %s", service, line, got, want)
					}
				}
			}
		}
	}
}

// offered reports whether the policy offers a service at the port of a packet.
func offered(s *subject.Subject, pkt *packet.Packet) bool {
	for _, p := range s.Parsed.Services[0].Port {
		if p.Proto == 0 || uint32(p.Proto) == pkt.Value[packet.Proto] {
			return true
		}
	}
	return false
}

// TestKnownDHCPServers checks a policy for a host that knows its DHCP servers. Their answers must have a limit of their own, which forged answers
// cannot use up.
func TestKnownDHCPServers(t *testing.T) {
	t.Parallel()
	s := subject.Lower(t, "default: drop\n")
	s.Parsed.DHCPServers = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("203.0.113.254")}
	var err error
	if s.Program, s.Notes, err = compile.Lower(s.Parsed); err != nil {
		t.Fatal(err)
	}
	s.Agree(t, s.Cases(t, `
udp 192.0.2.1:67 > 192.0.2.7:68           pass essential:dhcp-known
udp 203.0.113.254:67 > 255.255.255.255:68  pass essential:dhcp-known
udp 192.0.2.2:67 > 192.0.2.7:68           pass essential:dhcp
udp 203.0.113.253:67 > 192.0.2.7:68       pass essential:dhcp
udp 8.8.8.8:67 > 192.0.2.7:68             pass essential:dhcp
udp 192.0.2.1:67 > 192.0.2.7:69           drop default
`))
}
