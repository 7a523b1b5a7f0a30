// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestExempt sends traffic on all paths through a gateway that exempts some of it from conntrack. It counts the connections that conntrack follows.
func TestExempt(t *testing.T) {
	testutil.RequireRoot(t)
	for _, tool := range []string{"nft", "iptables-restore", "ipset"} {
		testutil.RequireTool(t, tool)
	}
	for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables} {
		t.Run(string(target), func(t *testing.T) {
			err := lab.Run(t.Context(), func(_ context.Context, l *lab.Lab) error {
				g := newGateway(t, l)
				g.exempt(target)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func (g *gateway) exempt(target plan.Target) {
	toHost, toContainer := []string{"10.0.0.2:80", "[fd00::2]:81"}, []string{"172.17.0.2:80", "[fd17::2]:81"}
	toOutside := []string{"10.0.0.1:80", "[fd00::1]:81"}
	type way struct {
		name    string
		from    *lab.Host
		to      []string
		tracked int
	}
	for policy, ways := range map[string][]way{
		"sets: {trusted: [10.0.0.1, \"fd00::1\", 192.0.2.0/24]}\nuntracked: [{from: $trusted}]": {
			{"from a trusted prefix", g.outside, toHost, 0},
			{"from a trusted prefix, forwarded", g.outside, toContainer, 0},
			{"to a trusted prefix", g.host, toOutside, 0},
			{"to a trusted prefix, forwarded", g.container, toOutside, 0},
			{"beside it", g.host, toContainer, 2},
		},
		"untracked: {from: 10.0.0.1, port: tcp/80}": {
			{"to the port", g.outside, []string{"10.0.0.2:80", "172.17.0.2:80"}, 0},
			{"to others, and of IPv6", g.outside, []string{"10.0.0.2:81", "[fd00::2]:80"}, 2},
			{"the port as source of the other side", g.host, []string{"10.0.0.1:80"}, 1},
		},
		"untracked: {to: local, family: ipv4, port: tcp/80}": {
			{"to the host", g.outside, []string{"10.0.0.2:80"}, 0},
			{"to others, and of IPv6", g.outside, []string{"10.0.0.2:81", "172.17.0.2:80", "[fd00::2]:80"}, 3},
			{"opened by the host", g.host, toOutside, 2},
		},
		"untracked: [{sport: tcp/80-90, from: [10.0.0.1, \"fd00::1\"]}, loopback]": {
			{"opened by the host", g.host, toOutside, 0},
			{"opened through the host", g.container, toOutside, 0},
			{"opened from outside", g.outside, toHost, 2},
			{"loopback", g.host, []string{"127.0.0.1:80"}, 0},
		},
		"untracked: all": {
			{"from outside", g.outside, toHost, 0},
			{"forwarded", g.outside, toContainer, 0},
			{"of the host", g.host, toOutside, 0},
			{"loopback", g.host, []string{"127.0.0.1:80"}, 0},
		},
	} {
		remove := g.load(target, policy)
		for _, w := range ways {
			g.connect(policy+": "+w.name, w.from, w.to, w.tracked)
		}
		remove()
	}
	g.exemptKinds(target)
}

// Packets that are frequent on a gateway with routing protocols: OSPF and VRRP packets of neighbors, multicast and broadcast.
var (
	ospf       = datagram{"10.0.0.1", "10.0.0.2", 89}
	ospfBack   = datagram{"10.0.0.2", "10.0.0.1", 89}
	vrrp       = datagram{"10.0.0.2", "224.0.0.18", 112}
	multicast  = datagram{"10.0.0.2", "224.0.0.5", 17}
	announced  = datagram{"10.0.0.1", "224.0.0.1", 17}
	broadcast  = datagram{"10.0.0.2", "10.0.0.255", 17}
	everywhere = datagram{"10.0.0.1", "255.255.255.255", 17}
)

func (g *gateway) exemptKinds(target plan.Target) {
	if err := g.outside.Do(meetEverybody); err != nil {
		g.Fatal(err)
	}
	for policy, tracked := range map[string]map[datagram]int{
		"checks: off":                        {ospf: 1, ospfBack: 1, vrrp: 1, multicast: 1, announced: 1, broadcast: 1, everywhere: 1},
		"untracked: [{proto: [ospf, vrrp]}]": {ospf: 0, ospfBack: 0, vrrp: 0, multicast: 1, announced: 1, broadcast: 1},
		"untracked: multicast":               {ospf: 1, vrrp: 0, multicast: 0, announced: 0, broadcast: 1, everywhere: 1},
		"untracked: [broadcast]":             {multicast: 1, announced: 1, broadcast: 0, everywhere: 0},
		"untracked: [multicast, broadcast, {proto: ospf, from: 10.0.0.1}]": {
			ospf: 0, ospfBack: 0, vrrp: 0, multicast: 0, announced: 0, broadcast: 0, everywhere: 0,
		},
	} {
		remove := g.load(target, policy)
		for d, want := range tracked {
			g.send(policy, d, want)
		}
		remove()
	}
}

// meetEverybody adds a neighbor entry with the broadcast hardware address to the outside. A device without neighbor discovery does not have it.
func meetEverybody() error {
	device, err := netlink.LinkByName("host")
	if err != nil {
		return err
	}
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: device.Attrs().Index, State: netlink.NUD_PERMANENT,
		IP: net.IPv4bcast, HardwareAddr: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	})
}

// datagram is an IP packet of a protocol between the outside and the gateway.
type datagram struct {
	from, to string
	proto    int
}

// send sends d, and then a packet that conntrack tracks. When conntrack has the second packet, both have arrived.
func (g *gateway) send(policy string, d datagram, tracked int) {
	g.Helper()
	if err := g.host.FlushConntrack(); err != nil {
		g.Fatal(err)
	}
	from := g.outside
	if d.from == "10.0.0.2" {
		from = g.host
	}
	behind := datagram{d.from, map[string]string{"10.0.0.1": "10.0.0.2", "10.0.0.2": "10.0.0.1"}[d.from], unix.IPPROTO_UDP}
	err := from.Do(func() error {
		if err := sendRaw(d); err != nil {
			return err
		}
		return sendRaw(behind)
	})
	if err != nil {
		g.Fatalf("%s: %+v: %v", policy, d, err)
	}
	entries := func(d datagram) int {
		to := net.ParseIP(d.to)
		return g.tracked(func(f *netlink.ConntrackFlow) bool {
			return int(f.Forward.Protocol) == d.proto && f.Forward.DstIP.Equal(to)
		})
	}
	if !testutil.Eventually(time.Minute, func() bool { return entries(behind) > 0 }) {
		g.Fatalf("%s: %+v: the datagram behind it is not tracked", policy, d)
	}
	if n := entries(d); n != tracked {
		g.Errorf("%s: %+v: %d entries, want %d", policy, d, n, tracked)
	}
}

// sendRaw sends a packet of a protocol. A UDP packet goes to port 9.
func sendRaw(d datagram) error {
	kind := unix.SOCK_RAW
	if d.proto == unix.IPPROTO_UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(unix.AF_INET, kind, d.proto)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	source := netip.MustParseAddr(d.from).As4()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
		return err
	}
	if err := unix.SetsockoptInet4Addr(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, source); err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: source}); err != nil {
		return err
	}
	return unix.Sendto(fd, make([]byte, 24), 0, &unix.SockaddrInet4{Port: 9, Addr: netip.MustParseAddr(d.to).As4()})
}

// TestExemptSaid checks the notes about rules for conntrack states that an exemption prevents.
func TestExemptSaid(t *testing.T) {
	for _, test := range []struct{ policy, want string }{
		{"untracked: all\nrules: [{name: old, state: established, then: pass}]",
			"line 2: \"old\" asks for state established and does not match any packet: `untracked` gives these the state untracked"},
		{"sets: {trusted: [192.0.2.0/24]}\nuntracked: {from: $trusted}\nrules: [{name: old, to: 192.0.2.7, state: new, then: pass}]",
			"line 3: \"old\" asks for state new and does not match packets of from=$trusted: `untracked` gives these the state untracked"},
		{"untracked: [{from: 192.0.2.0/24}]\nrules: [{name: old, from: 198.51.100.1, to: 203.0.113.1, state: new, then: pass}]", ""},
		{"untracked: [{proto: ospf}]\nrules: [{name: old, proto: tcp, state: new, then: pass}]", ""},
		{"untracked: all\nrules: [{name: old, state: [new, untracked], then: pass}]", ""},
	} {
		if got := strings.Join(subject.Lower(t, test.policy).Notes, "\n"); got != test.want {
			t.Errorf("%s\ngot %q\nwant %q", test.policy, got, test.want)
		}
	}
	_, err := subject.LowerError(t, "policy.yaml", "devices: [eth0]\nsets: {bans: {dynamic: true, max: 9}}\nuntracked: [{from: $bans}]")
	const want = `policy.yaml:3:20: untracked: the addresses of set "bans" change while the policy runs`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a set that changes: %v", err)
	}
}
