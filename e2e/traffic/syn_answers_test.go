// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// knock describes a SYN that a peer sends: its Ethernet and IP addresses, and whether it must be answered.
type knock struct {
	name     string
	mac      net.HardwareAddr // nil: the address of the device
	source   net.HardwareAddr // nil: the address of the peer
	from, to string           // "": the usual addresses
	answered bool
}

// Ethernet addresses that the host gets in some tests, and one, nobodys, that it never has.
var (
	nobodys = net.HardwareAddr{2, 0, 0, 9, 9, 9}
	vrrps   = net.HardwareAddr{0, 0, 0x5e, 0, 1, 0x33} // RFC 9568, 7.3
	second  = net.HardwareAddr{2, 0, 0, 9, 9, 1}
	bridges = net.HardwareAddr{2, 0, 0, 9, 9, 2}
	another = net.HardwareAddr{2, 0, 0, 9, 9, 3}
)

// knocks4 and knocks6 are SYNs that must not be answered in any mode.
var knocks4 = []knock{
	{name: "another Ethernet address", mac: nobodys},
	{name: "broadcast Ethernet address", mac: net.HardwareAddr{255, 255, 255, 255, 255, 255}},
	{name: "group", mac: net.HardwareAddr{1, 0, 0x5e, 0, 0, 1}},
	{name: "from a group", source: net.HardwareAddr{1, 0, 0x5e, 0, 0, 1}},
	{name: "from broadcast", source: net.HardwareAddr{255, 255, 255, 255, 255, 255}},
	{to: "0.0.0.0"}, {to: "0.1.2.3"}, {to: "127.0.0.1"}, {to: "127.9.9.9"}, {to: "224.0.0.1"}, {to: "239.255.1.1"}, {to: "240.0.0.1"},
	{to: "255.255.255.254"}, {to: "255.255.255.255"}, {to: "10.0.0.255"}, {to: "10.0.0.191"},
	{from: "0.0.0.0"}, {from: "0.1.2.3"}, {from: "127.0.0.1"}, {from: "224.0.0.1"}, {from: "239.255.1.1"}, {from: "255.255.255.255"},
	{from: "10.0.0.2"}, {from: "10.0.0.255"},
}

var knocks6 = []knock{
	{name: "another Ethernet address, IPv6", mac: nobodys, to: "fd09::2"},
	{name: "from a group, IPv6", source: net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, to: "fd09::2"},
	{name: "group, IPv6", mac: net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, to: "fd09::2"},
	{to: "::"}, {to: "::1"}, {to: "::ffff:10.9.0.2"}, {to: "ff02::1"}, {to: "ff0e::1"}, {to: "fe80::9"},
	{from: "::", to: "fd09::2"}, {from: "::1", to: "fd09::2"}, {from: "ff02::1", to: "fd09::2"}, {from: "fd00::2", to: "fd09::2"},
}

// neighbors are SYNs that must be answered.
var neighbors = []knock{
	{name: "neighbor of the broadcast address", from: "10.0.0.254", answered: true},
	{name: "source that ends as an own address", from: "10.16.0.2", answered: true},
	{name: "source of class E", from: "240.1.2.3", answered: true},
	{name: "IPv4", answered: true},
	{name: "IPv6", to: "fd09::2", answered: true},
	{name: "source that ends as an own address, IPv6", from: "fd00::1:2", to: "fd09::2", answered: true},
}

// TestAnswersForItself sends two kinds of SYNs: SYNs that are not for this host or the hosts behind it, and SYNs from addresses that no host has.
// Every answer must be from XDP, because the kernel receives no SYN.
func TestAnswersForItself(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.ip(s.protects, "addr add 10.0.0.129/26 dev client0") // its broadcast address is not configured
				s.deafen()
				s.protect(always, "checks: off\n")
				k := s.knocker()
				k.expect(slices.Concat(knocks4, knocks6, neighbors)...)
				switch mode {
				case "host":
					k.expect(knock{from: "10.9.0.2"}, knock{from: "fd09::2", to: "fd09::2"})
				case "router":
					k.expect(knock{from: "10.9.0.1"}, knock{from: "fd09::1", to: "fd09::2"}, knock{to: "10.9.0.255"}, knock{to: "10.9.0.254", answered: true})
				}
			})
		})
	}
}

// TestAnswersForDevices gives the host further Ethernet addresses while the policy runs. The daemon reports them to the program. The addresses belong
// to macvlans (as VRRP uses them), to a bridge with the device as a port, and to the device itself. SYNs to each address must be answered until the
// address is removed.
func TestAnswersForDevices(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.ip(s.protects, fmt.Sprintf("link add link client0 name standing address %s type macvlan mode bridge", second), "link set standing up")
				s.deafen()
				s.protect(always, "checks: off\n")
				k := s.knocker()
				k.expect(knock{name: "macvlan", mac: second, answered: true}, knock{name: "macvlan, IPv6", mac: second, to: "fd09::2", answered: true},
					knock{name: "no VRRP yet", mac: vrrps})
				s.ip(s.protects, fmt.Sprintf("link add link client0 name vrrp address %s type macvlan mode private", vrrps), "link set vrrp up")
				k.until(knock{name: "VRRP", mac: vrrps, answered: true})
				if mode == "host" {
					s.ip(s.protects, "addr add 10.0.0.100/32 dev vrrp", "addr add fd00::100/128 dev vrrp nodad")
					k.until(knock{name: "address of VRRP", mac: vrrps, to: "10.0.0.100", answered: true})
					k.until(knock{name: "address of VRRP, IPv6", mac: vrrps, to: "fd00::100", answered: true})
				}
				s.ip(s.protects, "link del vrrp")
				k.until(knock{name: "VRRP is elsewhere", mac: vrrps})
				s.ip(s.protects, "link del standing", fmt.Sprintf("link add bridge0 address %s type bridge", bridges), "link set bridge0 up",
					"link set client0 master bridge0")
				k.until(knock{name: "bridge", mac: bridges, answered: true})
				k.expect(knock{name: "device in a bridge", answered: true}, knock{name: "host behind the bridge", mac: nobodys},
					knock{name: "macvlan that was", mac: second})
				s.ip(s.protects, "link set client0 nomaster")
				k.until(knock{name: "bridge that it is not in", mac: bridges})
				s.ip(s.protects, fmt.Sprintf("link set client0 address %s", another))
				k.until(knock{name: "another address of the device", mac: another, answered: true})
				k.expect(knock{name: "the address that it had"})
			})
		})
	}
}

// deafen makes the kernel of the protecting host drop all SYNs from clients.
func (s *synScene) deafen() {
	s.Helper()
	s.run(s.protects, "nft add table inet deaf")
	s.run(s.protects, "nft add chain inet deaf first { type filter hook prerouting priority -450 ; }")
	s.run(s.protects, "nft add rule inet deaf first tcp flags & (syn|ack) == syn drop")
}

// knocker sends SYNs with every form of TCP options that the program answers differently.
type knocker struct {
	*peer
	port   uint16
	device net.HardwareAddr
	forms  [][]layers.TCPOption
}

func (s *synScene) knocker() *knocker {
	s.Helper()
	k := &knocker{peer: s.newPeer(servers[0], 1), port: 1024}
	k.device = k.eth.DstMAC
	mss, sack, nop := option(layers.TCPOptionKindMSS, 5, 180), option(layers.TCPOptionKindSACKPermitted), layers.TCPOption{OptionType: layers.TCPOptionKindNop}
	scale := option(layers.TCPOptionKindWindowScale, 7)
	k.forms = [][]layers.TCPOption{
		{mss, sack, option(layers.TCPOptionKindTimestamps, 0, 0, 1, 0, 0, 0, 0, 0), nop, scale}, // Linux
		{mss, nop, scale, nop, nop, sack}, // Windows
		nil,                               // tools for floods
		{scale, mss},                      // any other client
	}
	return k
}

// knockAs sends a SYN in every form, and returns the source ports.
func (k *knocker) knockAs(n knock) (ports []uint16) {
	k.Helper()
	to := servers[0].Addr()
	if n.to != "" {
		to = netip.MustParseAddr(n.to)
	}
	from := peers[0]
	k.eth.EthernetType = layers.EthernetTypeIPv4
	if to.Is6() {
		from, k.eth.EthernetType = peers[1], layers.EthernetTypeIPv6
	}
	if n.from != "" {
		from = netip.MustParseAddr(n.from)
	}
	k.eth.DstMAC = n.mac
	if n.mac == nil {
		k.eth.DstMAC = k.device
	}
	own := k.eth.SrcMAC
	defer func() { k.eth.SrcMAC = own }()
	if n.source != nil {
		k.eth.SrcMAC = n.source
	}
	for _, form := range k.forms {
		k.port++
		k.from, k.to = netip.AddrPortFrom(from, k.port), netip.AddrPortFrom(to, 80)
		k.send(segment{flags: "S", options: form})
		ports = append(ports, k.port)
	}
	return ports
}

// heard sends the SYNs of last, which are certainly answered. It returns the source ports of all SYNs that are answered before them.
func (k *knocker) heard(last knock) map[uint16]bool {
	k.Helper()
	final, heard, buffer := k.knockAs(last), map[uint16]bool{}, make([]byte, 1<<16)
	for end := time.Now().Add(synPatience); time.Now().Before(end); {
		wait := unix.NsecToTimeval(int64(again))
		unix.SetsockoptTimeval(k.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
		n, err := unix.Read(k.socket, buffer)
		if err != nil {
			continue
		}
		tcp, ok := gopacket.NewPacket(buffer[:n], layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok || !tcp.SYN || !tcp.ACK {
			continue
		}
		if heard[uint16(tcp.DstPort)] = true; uint16(tcp.DstPort) == final[len(final)-1] {
			return heard
		}
	}
	k.Fatalf("no answer to %v", last)
	return nil
}

// expect sends SYNs, and checks that exactly the right ones are answered.
func (k *knocker) expect(list ...knock) {
	k.Helper()
	var sent [][]uint16
	for _, n := range list {
		sent = append(sent, k.knockAs(n))
	}
	heard := k.heard(knock{mac: k.mac(-1, k.devices[0])})
	for i, n := range list {
		for form, port := range sent[i] {
			if heard[port] != n.answered {
				k.Errorf("%s, form %d of the options: answered %t, want %t", n, form, heard[port], n.answered)
			}
		}
	}
}

// until refreshes the host's addresses in the program, as the daemon does at each change, and sends a SYN in all forms. It repeats this until all of
// the SYNs are answered, or none of them, as n.answered says.
func (k *knocker) until(n knock) {
	k.Helper()
	for end := time.Now().Add(synPatience); ; time.Sleep(20 * time.Millisecond) {
		if err := k.protects.Do(func() error { _, _, err := k.RefreshLocal(k.ctx); return err }); err != nil {
			k.Fatal(err)
		}
		sent := k.knockAs(n)
		heard, count := k.heard(knock{mac: k.mac(-1, k.devices[0])}), 0
		for _, port := range sent {
			if heard[port] {
				count++
			}
		}
		if n.answered && count == len(sent) || !n.answered && count == 0 {
			return
		}
		if time.Now().After(end) {
			k.Fatalf("%s: %d of %d forms are answered, want all: %t", n, count, len(sent), n.answered)
		}
	}
}

func (n knock) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s > %s %s", n.name, n.from, n.to, n.mac))
}
