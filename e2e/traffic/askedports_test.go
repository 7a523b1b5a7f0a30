// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// askingPolicy turns on all checks of source addresses. All addresses of the test hosts are bogons.
const askingPolicy = `
default: drop
checks: {profile: strict, bogon-source: on}
services: [{name: open, port: udp/7777}]
`

// metadata is the address of the metadata service of clouds. In some clouds the resolver has the same address.
const metadata = "169.254.169.254"

// TestAskedPorts makes the server send requests to each reflector port, to private addresses, and to a cloud's metadata service. Each answer must
// arrive. The checks must still drop packets that the server has not requested, even if they come from the same hosts but to another port of the
// server.
func TestAskedPorts(t *testing.T) {
	inScene(t, func(s *scene) {
		if err := s.attacker.Own(netip.MustParsePrefix(metadata + "/32")); err != nil {
			t.Fatal(err)
		}
		answering := []netip.AddrPort{netip.MustParseAddrPort(metadata + ":80")}
		for _, address := range []string{"10.0.0.1", "fd00::1"} {
			for _, port := range append([]uint16{53, 162}, packet.ReflectorPorts...) {
				answering = append(answering, netip.AddrPortFrom(netip.MustParseAddr(address), port))
			}
		}
		for _, a := range answering {
			answerAt(s, s.attacker, a)
		}
		for _, target := range targets {
			s.apply(target, askingPolicy)
			for _, a := range answering {
				if err := s.ask("udp", a); err != nil {
					t.Errorf("%s: no answer from %v: %v", target, a, err)
				}
			}
			forged := []string{"udp 198.18.0.1:161 > 10.0.0.2:4000", "udp 11.0.0.1:161 > 10.0.0.2:7777", "udp 10.0.0.1:161 > 10.0.0.2:7777",
				"icmp 10.0.0.1 > 10.0.0.2 type=8", "tcp 10.0.0.1:161 > 10.0.0.2:7777 A", "udp [fd00::1]:161 > [fd00::2]:7777", "tcp [fd00::1]:80 > [fd00::2]:7777 S"}
			s.checked(target, packet.BogonSource, len(forged)-1, forged)
		}
	})
}

// TestAskedBesidePass tests a policy with `default: pass` and `replies: pass`. Answers must also pass the checks.
func TestAskedBesidePass(t *testing.T) {
	inScene(t, func(s *scene) {
		asked := netip.MustParseAddrPort("10.0.0.1:161")
		answerAt(s, s.attacker, asked)
		for _, target := range targets {
			s.apply(target, "checks: strict\nreplies: pass\n")
			if err := s.ask("udp", asked); err != nil {
				t.Errorf("%s: no answer from %v: %v", target, asked, err)
			}
			s.checked(target, packet.ReflectorSource, 1, []string{"udp 10.0.0.1:161 > 10.0.0.2:7777"})
		}
	})
}

// answerAt makes a host answer each UDP datagram to an address.
func answerAt(s *scene, h *lab.Host, at netip.AddrPort) {
	s.Helper()
	var c *net.UDPConn
	err := h.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	go answer(c)
}

// checked sends packets. It fails the test unless the check drops n of them.
func (s *scene) checked(target plan.Target, check packet.Check, n int, lines []string) {
	s.Helper()
	before := s.failures(check)
	s.send(len(lines), s.frames(lines...))
	dropped := uint64(0)
	for end := time.Now().Add(patience); time.Now().Before(end) && dropped < uint64(n); time.Sleep(10 * time.Millisecond) {
		dropped = s.failures(check) - before
	}
	if dropped != uint64(n) {
		s.Errorf("%s: the check %s has dropped %d packets, should be %d of %q", target, check, dropped, n, lines)
	}
}

// failures returns the number of packets that a check has dropped.
func (s *scene) failures(check packet.Check) (packets uint64) {
	s.Helper()
	err := s.server.Do(func() error {
		status, err := s.Status(s.ctx)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(status.Checks, func(c control.RuleStatus) bool { return c.Name == check.String() }); i >= 0 {
			packets = status.Checks[i].Packets
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return packets
}
