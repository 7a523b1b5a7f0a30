// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"net"
	"os"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/test/testutil"
)

// makeTunnels runs the row's script. A line "tunnel PLACE DEVICE PORT PLACE DEVICE ADDRESS" in the script describes a tunnel that makeTunnels makes
// itself. The first place receives at the port. The second place sends to the address. A line "pppoe PLACE DEVICE PLACE DEVICE" describes a PPPoE
// session over these Ethernet devices.
func (s *scene) makeTunnels() {
	s.Helper()
	var script []string
	for line := range strings.Lines(s.host.make) {
		w := strings.Fields(line)
		if len(w) == 5 && w[0] == "pppoe" {
			s.pppoe(w[1], w[2], s.mac(w[3], w[4]))
			s.pppoe(w[3], w[4], s.mac(w[1], w[2]))
			continue
		}
		if len(w) != 7 || w[0] != "tunnel" {
			script = append(script, line)
			continue
		}
		server, far := s.tunnel(w[1], w[2], ":"+w[3]), s.tunnel(w[4], w[5], ":0")
		peer, err := net.ResolveUDPAddr("udp4", w[6])
		if err != nil {
			s.Fatal(err)
		}
		server.carry(nil)
		far.carry(peer)
	}
	s.sh(strings.Join(script, ""))
}

// tunnel is one end of a tunnel: a device for packets without an Ethernet header, and a UDP socket.
type tunnel struct {
	device *os.File
	socket *net.UDPConn
}

func (s *scene) tunnel(place, device, at string) (t tunnel) {
	s.Helper()
	var err error
	s.places[place].Do(func() { t, err = openTunnel(device, at) })
	if err != nil {
		s.Fatalf("tunnel %s of %s: %v", device, place, err)
	}
	s.Cleanup(func() { t.device.Close(); t.socket.Close() })
	s.sh(place + " ip link set " + device + " up")
	return t
}

func openTunnel(device, at string) (t tunnel, err error) {
	if t.device, err = testutil.Tun(device); err != nil {
		return t, err
	}
	address, err := net.ResolveUDPAddr("udp4", at)
	if err == nil {
		t.socket, err = net.ListenUDP("udp4", address)
	}
	return t, err
}

// carry transfers packets between the device and the socket in both directions. It sends packets to the source of the last received packet. Before
// the first one, it sends them to peer.
func (t tunnel) carry(peer *net.UDPAddr) {
	var mu sync.Mutex
	go func() {
		for data := make([]byte, 1<<16); ; {
			n, from, err := t.socket.ReadFromUDP(data)
			if err != nil {
				return
			}
			mu.Lock()
			peer = from
			mu.Unlock()
			t.device.Write(data[:n])
		}
	}()
	go func() {
		for data := make([]byte, 1<<16); ; {
			n, err := t.device.Read(data)
			if err != nil {
				return
			}
			mu.Lock()
			to := peer
			mu.Unlock()
			if to != nil {
				t.socket.WriteToUDP(data[:n], to)
			}
		}
	}()
}

// mac returns the Ethernet address of a device of a place.
func (s *scene) mac(place, device string) (mac net.HardwareAddr) {
	s.places[place].Do(func() {
		if dev, err := netlink.LinkByName(device); err == nil {
			mac = dev.Attrs().HardwareAddr
		}
	})
	return mac
}
