// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/plan"
)

// newcomersPolicy is a policy with a protected service. During a flood it passes the first packets of each source up to a number, so that the result
// does not depend on chance. All further packets of a newcomer must be recognized as packets of this newcomer.
const newcomersPolicy = `
default: drop
checks: strict
services: [{name: svc, port: udp/%d, udp: {protect: %s, start: 500/s, limit: {rate: 1/h, per: from/32/128, burst: %d}, total: off}}]
`

// newcomers gives the client two prefixes of source addresses. The function from returns the address of newcomer i. The function to returns the
// server's address in the same family.
func (s *scene) newcomers() (from func(i int) string, to func(i, port int) string) {
	s.Helper()
	if err := s.client.Sysctl("ipv6/ip_nonlocal_bind", "1"); err != nil { // for IPv4 a local route suffices
		s.Fatal(err)
	}
	for _, prefix := range []string{"10.2.0.0/24 10.1.0.1", "fd02::/64 fd01::1"} {
		if err := route(s.server, prefix); err != nil {
			s.Fatal(err)
		}
		_, local, _ := net.ParseCIDR(strings.Fields(prefix)[0])
		err := s.client.Do(func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{Dst: local, LinkIndex: lo.Attrs().Index, Type: 2, Table: 255, Scope: netlink.SCOPE_HOST}) // type local, in the local table
		})
		if err != nil {
			s.Fatal(err)
		}
	}
	from = func(i int) string {
		return [2]string{fmt.Sprintf("10.2.0.%d:0", i+1), fmt.Sprintf("[fd02::%x]:0", i+1)}[i%2]
	}
	to = func(i, port int) string { return fmt.Sprintf([2]string{"10.1.0.2:%d", "[fd01::2]:%d"}[i%2], port) }
	return from, to
}

// besideDropped sends a flood from one source, which a rule drops. During the flood, the given number of newcomers connect at the same time. All must
// succeed.
func (s *scene) besideDropped(rule string, port int, payload func(r *rand.Rand) string, newcomers int, comes func(i int) bool) {
	s.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var forged []string
	for range 100 { // the service answers some of these before it notices the flood, and they use up less than half of the packets that may pass as answered
		forged = append(forged, fmt.Sprintf("udp 20.7.7.7:%d > 10.0.0.2:%d payload=0x%s", 1024+r.IntN(60000), port, payload(r)))
	}
	s.besidePacedFlood(forged, 50*time.Millisecond, 10*time.Second, rule, func() {
		var wait sync.WaitGroup
		var served atomic.Int32
		for i := range newcomers {
			wait.Go(func() {
				if comes(i) {
					served.Add(1)
				}
			})
		}
		wait.Wait()
		if n := served.Load(); int(n) != newcomers {
			s.Errorf("%d of %d newcomers are served", n, newcomers)
		}
	})
	s.Logf("of %d newcomers pass %d first packets, %d as they are answered, and %d of known ones", newcomers, s.counted("svc"), s.counted("svc:answered"), s.counted("svc:known"))
}

// TestNewcomersInFlood makes newcomers use real libraries of a protocol during a flood. One first packet of each newcomer passes. All its further
// packets until the first answer must also pass. For QUIC, these are the handshake and a stream. For WireGuard, these are the handshake and a packet
// in the tunnel. For other protocols, these are several exchanges.
func TestNewcomersInFlood(t *testing.T) {
	t.Parallel()
	const each = 20
	t.Run("quic", func(t *testing.T) {
		t.Parallel()
		inScene(t, func(s *scene) {
			s.apply(plan.TargetXDP, fmt.Sprintf(newcomersPolicy, 443, "quic", 1))
			s.quicServer(8)
			from, to := s.newcomers()
			handshake := func(r *rand.Rand) string {
				return fmt.Sprintf("e00000000108%016x08%016x%0120x", r.Uint64(), r.Uint64(), 0)
			}
			s.besideDropped("svc:stray", 443, handshake, 2*each, func(i int) bool {
				client := s.changing
				if i >= each {
					client = s.staying
				}
				c, err := client(from(i), to(i, 443))
				if err != nil {
					s.Errorf("newcomer %d: %v", i, err)
				}
				return err == nil && c.ask(s.ctx, "question")
			})
		})
	})
	t.Run("generic", func(t *testing.T) {
		t.Parallel()
		inScene(t, func(s *scene) {
			s.apply(plan.TargetXDP, fmt.Sprintf(newcomersPolicy, 7000, "generic", 1))
			s.openGame()
			from, to := s.newcomers()
			s.besideDropped("svc:limit", 7000, func(*rand.Rand) string { return "00" }, each, func(i int) bool {
				var p player
				err := s.client.Do(func() (err error) {
					p.Conn, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from(i))), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to(i, 7000))))
					return err
				})
				if err != nil {
					s.Error(err)
					return false
				}
				defer p.Close()
				_, all := p.play(5)
				return all == 5
			})
		})
	})
	t.Run("wireguard", func(t *testing.T) {
		t.Parallel()
		inScene(t, func(s *scene) {
			s.apply(plan.TargetXDP, fmt.Sprintf(newcomersPolicy, 51820, "wireguard", each))
			_, pings := s.tunnels(each, func(int) string { return "10.1.0.2:51820" })
			data := func(r *rand.Rand) string { return fmt.Sprintf("04000000%08x%048x", r.Uint32(), r.Uint64()) }
			s.besideDropped("svc:stray", 51820, data, each, func(i int) bool { return pings(i, 3, 20) == 3 })
		})
	})
}
