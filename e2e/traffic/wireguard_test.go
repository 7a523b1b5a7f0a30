// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/curve25519"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/tun/tuntest"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab"
)

const wireguardPolicy = `
default: drop
checks: strict
services: [{name: vpn, port: udp/51820, udp: {protect: wireguard, start: 500/s, limit: {rate: 20/s, per: from/24/56}, total: 50/s}}]
`

// tunnel is one end of a WireGuard tunnel. The test itself sends and receives the packets in the tunnel.
type tunnel struct {
	*device.Device
	link   *tuntest.ChannelTUN
	at     netip.Addr // its address in the tunnel
	secret [32]byte
}

// quiet is a TUN device that reports no events. The first event reports that the device is up. WireGuard would then open its sockets in any thread,
// and so in a wrong network namespace.
type quiet struct{ tun.Device }

func (quiet) Events() <-chan tun.Event { return nil }

// public returns the public key in hexadecimal.
func (w *tunnel) public() string {
	key, _ := curve25519.X25519(w.secret[:], curve25519.Basepoint)
	return hex.EncodeToString(key)
}

// tunnelOn makes an end of a tunnel on a host.
func (s *scene) tunnelOn(h *lab.Host, number int) *tunnel {
	s.Helper()
	w := &tunnel{link: tuntest.NewChannelTUN(), at: netip.AddrFrom4([4]byte{10, 77, 0, byte(number)})}
	w.secret[0], w.secret[1] = 8, byte(number)
	w.Device = device.NewDevice(quiet{w.link.TUN()}, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	s.Cleanup(w.Close)
	return w
}

// set configures an end of a tunnel on a thread of its host, because this may open sockets.
func (s *scene) set(h *lab.Host, w *tunnel, lines ...string) {
	s.Helper()
	if err := h.Do(func() error { return w.IpcSet(strings.Join(lines, "\n") + "\n") }); err != nil {
		s.Fatal(err)
	}
}

// up opens the sockets of an end of a tunnel.
func (s *scene) up(h *lab.Host, w *tunnel) {
	s.Helper()
	if err := h.Do(w.Up); err != nil {
		s.Fatal(err)
	}
}

// pings sends n packets through the tunnel to the other end, one after the other. It sends a packet again every second until it arrives, at most
// tries times. It returns the number of packets that arrive.
func (w *tunnel) pings(to *tunnel, inbox <-chan netip.Addr, n, tries int) (arrived int) {
	for range n {
		for range tries {
			w.link.Outbound <- tuntest.Ping(to.at, w.at)
			select {
			case <-inbox:
				arrived++
			case <-time.After(time.Second):
				continue
			}
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return arrived
}

// inboxes returns a channel for each peer in of. When a packet from the peer arrives at this end, the channel receives its source address.
func (w *tunnel) inboxes(of []*tunnel) map[netip.Addr]chan netip.Addr {
	boxes := map[netip.Addr]chan netip.Addr{}
	for _, peer := range of {
		boxes[peer.at] = make(chan netip.Addr, 1000)
	}
	go func() {
		for packet := range w.link.Inbound {
			from := netip.AddrFrom4([4]byte(packet[12:16]))
			boxes[from] <- from
		}
	}()
	return boxes
}

// tunnels opens a WireGuard service and tunnels of clients to it. The function to returns the address of the service for a client. The returned
// function pings sends packets of one client, as tunnel.pings does.
func (s *scene) tunnels(clients int, to func(client int) string) (all []*tunnel, pings func(client, n, tries int) int) {
	s.Helper()
	server := s.tunnelOn(s.server, 1)
	lines := []string{"private_key=" + hex.EncodeToString(server.secret[:]), "listen_port=51820"}
	for i := range clients {
		c := s.tunnelOn(s.client, 2+i)
		all, lines = append(all, c), append(lines, "public_key="+c.public(), "allowed_ip="+c.at.String()+"/32")
	}
	s.set(s.server, server, lines...)
	s.up(s.server, server)
	boxes := server.inboxes(all)
	for i, c := range all {
		s.set(s.client, c, "private_key="+hex.EncodeToString(c.secret[:]), "public_key="+server.public(), "endpoint="+to(i), "allowed_ip=10.77.0.1/32")
		s.up(s.client, c)
	}
	return all, func(client, n, tries int) int { return all[client].pings(server, boxes[all[client].at], n, tries) }
}

// TestWireGuardFlood sends a flood of forged data and initiations to a WireGuard service. All packets of peers that are not known yet must arrive,
// even if a peer continues from another port. The service may receive only a few of the forged initiations.
func TestWireGuardFlood(t *testing.T) {
	t.Parallel()
	inScene(t, func(s *scene) {
		const peers, moved = 50, 10
		s.apply(plan.TargetXDP, wireguardPolicy)
		clients, pings := s.tunnels(peers, func(i int) string { return [2]string{"10.1.0.2:51820", "[fd01::2]:51820"}[i%2] })
		all := func(when string, n, tries int) {
			t.Helper()
			var wait sync.WaitGroup
			for i := range clients {
				wait.Go(func() {
					if got := pings(i, n, tries); got != n {
						t.Errorf("%s: of %d packets of peer %d %d arrive", when, n, i, got)
					}
				})
			}
			wait.Wait()
		}
		all("at first", 1, 20) // the handshake
		all("without a flood", 5, 4)
		for range 12 { // 50 s, in which each sends now and then
			all("in the meantime", 1, 4)
			s.ageFlows(1)
		}
		if n := s.counted("vpn:total") + s.counted("vpn:stray") + s.counted("vpn:limit"); n > 0 {
			t.Fatalf("without a flood %d packets are dropped", n)
		}
		r := rand.New(rand.NewPCG(1, 2))
		var forged []string
		for i := range 3000 {
			from := fmt.Sprintf("udp %d.%d.%d.%d:%d > 10.0.0.2:51820", 20+r.IntN(100), r.IntN(256), r.IntN(256), r.IntN(256), 1024+r.IntN(60000))
			if i%3 == 0 {
				forged = append(forged, from+" payload=0x01000000"+strings.Repeat(fmt.Sprintf("%016x", r.Uint64()), 18))
			} else {
				forged = append(forged, fmt.Sprintf("%s payload=0x04000000%08x%048x", from, r.Uint32(), r.Uint64()))
			}
		}
		began := time.Now()
		s.besideFlood(forged, "vpn:total", func() {
			all("beside a flood", 20, 4)
			proved := s.counted("vpn:proved")
			for i, c := range clients[:moved] {
				s.set(s.client, c, fmt.Sprintf("listen_port=%d", 30_000+i))
			}
			all("from another port", 10, 4)
			if n := s.counted("vpn:proved") - proved; n < moved*10 {
				t.Errorf("of %d packets %d are counted as proved", moved*10, n)
			}
		})
		s.boundedFlood("vpn", began)
	})
}
