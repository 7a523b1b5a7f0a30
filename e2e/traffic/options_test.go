// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// Options that a connection has negotiated. The values are bits of tcpi_options in linux/tcp.h.
const (
	timestamps = 1 << iota
	sack
	windowScaling
	ecn
	negotiated = timestamps | sack | windowScaling | ecn
)

// effect has the values that are in effect at one end of a connection.
type effect struct {
	Options       uint8
	Send, Receive uint8  // window scales
	Segment       uint32 // the size of the largest segment that this end sends
}

// effects has the values at the client and at the server.
type effects struct{ Client, Server effect }

// effectAt returns the values that a host's kernel reports for the connection from one address to another.
func effectAt(h *lab.Host, from, to netip.AddrPort) (e effect, err error) {
	var found []*netlink.InetDiagTCPInfoResp
	family := uint8(unix.AF_INET)
	if from.Addr().Is6() {
		family = unix.AF_INET6
	}
	err = h.Do(func() (err error) { found, err = netlink.SocketDiagTCPInfo(family); return err })
	for _, f := range found {
		id := &f.InetDiagMsg.ID
		if address(id.Source, id.SourcePort) == from && address(id.Destination, id.DestinationPort) == to && f.TCPInfo != nil {
			i := f.TCPInfo // the library netlink has swapped the names of the two window scales
			return effect{Options: i.Options & negotiated, Send: i.Rcv_wscale, Receive: i.Snd_wscale, Segment: i.Snd_mss}, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("host %s has no connection from %s to %s", h.Name, from, to)
	}
	return e, err
}

func address(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}

// setting is a client with special settings.
type setting struct {
	name    string
	sysctls string // the client's sysctls under net/ipv4
	mss     int    // the MSS that the client announces; 0: that of the device
	vlan    bool
	partial bool // the kernel leaves checksums to the device, which does not compute them either

	host, router uint8 // options that connections lack in this mode, because a SYN without timestamps has no space for them
	floored      bool  // for the same reason the server may assume a smaller window scale and smaller segments of the client
}

var settings = []setting{
	{name: "usual"},
	{name: "no timestamps", sysctls: "tcp_timestamps=0", router: windowScaling | sack, floored: true},
	{name: "no SACK", sysctls: "tcp_sack=0"},
	{name: "no window scaling", sysctls: "tcp_window_scaling=0"},
	{name: "no timestamps nor SACK", sysctls: "tcp_timestamps=0 tcp_sack=0", host: windowScaling, router: windowScaling},
	{name: "no options", sysctls: "tcp_timestamps=0 tcp_sack=0 tcp_window_scaling=0"},
	{name: "ECN", sysctls: "tcp_ecn=1", router: ecn}, // nft cannot express ECN
	{name: "ECN without timestamps", sysctls: "tcp_ecn=1 tcp_timestamps=0", host: ecn, router: windowScaling | sack | ecn, floored: true},
	{name: "MSS 536", mss: 536},
	{name: "MSS 1220", mss: 1220},
	{name: "MSS 536 without timestamps", mss: 536, sysctls: "tcp_timestamps=0", router: windowScaling | sack, floored: true},
	{name: "VLAN", vlan: true},
	{name: "partial checksums", partial: true},
	{name: "VLAN and partial checksums", vlan: true, partial: true},
}

// longSettings has clients on links with large frames.
var longSettings = []setting{
	{name: "MSS 8960"},
	{name: "MSS 4056", mss: 4056},
	{name: "MSS 8960 without timestamps", sysctls: "tcp_timestamps=0", router: windowScaling | sack, floored: true},
}

// TestOptions compares protected and unprotected connections of clients with different settings.
func TestOptions(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			compareSettings(t, mode, 1500, settings)
		})
		t.Run(mode+" with large frames", func(t *testing.T) {
			t.Parallel()
			compareSettings(t, mode, 9000, longSettings)
		})
	}
}

func compareSettings(t *testing.T, mode string, mtu int, settings []setting) {
	synInScene(t, mode, len(settings), mtu, func(s *synScene) {
		for i, c := range settings {
			s.set(i, c)
		}
		s.nginx()
		s.track()
		before := s.visit(mode, settings)
		if s.entries() == 0 {
			t.Error("connections are not tracked: that the protected are not shows nothing")
		}
		s.protect(always, "")
		s.untag()
		s.protects.FlushConntrack()
		after := s.visit(mode, settings)
		for i, c := range settings {
			for _, to := range c.servers(mode) {
				want := c.expected(mode, to, before[i][to])
				if diff := cmp.Diff(want, after[i][to].bounded(want, mode == "router" || c.floored, c.floored)); diff != "" {
					t.Errorf("%s, %s (-unprotected +protected):\n%s", c.name, family(to), diff)
				}
			}
		}
		if n := s.entries(); mode == "host" && n != 0 {
			t.Errorf("%d protected connections are tracked", n)
		}
		_, counts := s.status()
		if want := uint64(len(settings)); counts["answered"] < want || counts["proved"] < want {
			t.Errorf("%d connections, and the protection counts %v", want, counts)
		}
	})
}

// servers returns the server's addresses to which a client connects. SYNPROXY of nftables handles IPv6 only if the device or its GRO has verified the
// checksum (net/netfilter/nft_synproxy.c, nft_synproxy_do_eval). GRO verifies it for VLAN frames only if the kernel has the VLAN device.
func (c *setting) servers(mode string) []netip.AddrPort {
	if mode == "router" && c.vlan && !c.partial {
		return servers[:1]
	}
	return servers
}

// leastIPv6 is the smallest MSS that an IPv6 host can have (RFC 8200, 5).
const leastIPv6 = 1280 - 60

// expected returns the values that a protected connection must have. The parameter e has the values of an unprotected one.
func (c *setting) expected(mode string, to netip.AddrPort, e effects) effects {
	lost := c.host
	if mode == "router" {
		lost = c.router
	}
	for _, end := range []*effect{&e.Client, &e.Server} {
		end.Options &^= lost
		if lost&windowScaling != 0 {
			end.Send, end.Receive = 0, 0
		}
	}
	if to.Addr().Is6() {
		least := uint32(leastIPv6)
		if e.Server.Options&timestamps != 0 {
			least -= stampSize
		}
		e.Server.Segment = max(e.Server.Segment, least)
	}
	return e
}

// stampSize is the number of bytes that timestamps take in each segment.
const stampSize = 12

// bounded replaces the server's segment size and window scale by those of want, if they are allowed to be smaller and are within bounds.
func (e effects) bounded(want effects, segments, scale bool) effects {
	if segments && 536-stampSize <= e.Server.Segment && e.Server.Segment < want.Server.Segment {
		e.Server.Segment = want.Server.Segment
	}
	if scale && want.Server.Send-2 <= e.Server.Send && e.Server.Send < want.Server.Send {
		e.Server.Send = want.Server.Send
	}
	return e
}

// set configures client i according to a setting.
func (s *synScene) set(i int, c setting) {
	s.Helper()
	client, name := s.clients[i], s.devices[i]
	for _, one := range strings.Fields(c.sysctls) {
		variable, value, _ := strings.Cut(one, "=")
		s.sysctl(client, "ipv4/"+variable, value)
	}
	if c.vlan {
		s.tag(i)
	}
	if c.mss > 0 {
		s.routes(i, fmt.Sprintf("advmss %d", c.mss), "replace")
	}
	if c.partial {
		testutil.RequireTool(s, "ethtool")
		s.run(client, "ethtool -K protects tx on")
		s.run(s.protects, "ethtool -K "+name+" tx on")
	}
}

// visit makes each client request the page from each address of the server. It returns the values in effect.
func (s *synScene) visit(mode string, settings []setting) []map[netip.AddrPort]effects {
	s.Helper()
	all := make([]map[netip.AddrPort]effects, len(settings))
	for i, c := range settings {
		all[i] = map[netip.AddrPort]effects{}
		for _, to := range c.servers(mode) {
			e, err := s.effects(s.clients[i], to)
			if err != nil {
				s.Errorf("%s, %s: %v", c.name, family(to), err)
			}
			all[i][to] = e
		}
	}
	return all
}

// effects requests the page over one connection. It returns the values in effect at both ends.
func (s *synScene) effects(from *lab.Host, to netip.AddrPort) (e effects, err error) {
	c, err := s.dial(from, to)
	if err != nil {
		return e, err
	}
	defer c.Close()
	if err := getPage(c); err != nil {
		return e, err
	}
	client := c.LocalAddr().(*net.TCPAddr).AddrPort()
	if e.Client, err = effectAt(from, client, to); err != nil {
		return e, err
	}
	e.Server, err = effectAt(s.server, to, client)
	return e, err
}

// track makes the protecting host track connections, as a host with a stateful rule does.
func (s *synScene) track() {
	s.Helper()
	testutil.RequireTool(s, "nft")
	s.run(s.protects, "nft table inet stateful { chain first { type filter hook prerouting priority 0; ct state established accept; }; }")
}

// entries returns the number of connections that the protecting host tracks.
func (s *synScene) entries() int {
	s.Helper()
	c, err := s.protects.Conntrack()
	if err != nil {
		s.Fatal(err)
	}
	return c.Entries
}
