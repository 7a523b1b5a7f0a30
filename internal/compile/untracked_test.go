// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// foreign is a table of another program. It passes answers that conntrack knows, and packets from the policy's device and from loopback. It drops all
// other packets.
const foreign = `
table inet other {
	chain input {
		type filter hook input priority 10; policy drop;
		ct state established accept
		iifname { "eth0", "lo" } accept
	}
}
`

// TestUntrackedConnections makes connections on all paths through a host with a service that is exempt from conntrack, and checks which of them
// conntrack follows. Answers to connections that the host itself opens must arrive, because conntrack knows both directions.
func TestUntrackedConnections(t *testing.T) {
	testutil.RequireRoot(t)
	for _, tool := range []string{"nft", "iptables-restore", "ipset"} {
		testutil.RequireTool(t, tool)
	}
	for _, target := range []plan.Target{plan.TargetNftables, plan.TargetIptables} {
		t.Run(string(target), func(t *testing.T) {
			err := lab.Run(t.Context(), func(_ context.Context, l *lab.Lab) error {
				g := newGateway(t, l)
				g.load(target, "untracked: [loopback]\nservices: [{name: web, port: tcp/80, track: false}]")
				for _, c := range []struct {
					name    string
					from    *lab.Host
					to      []string
					tracked int
				}{
					{"from outside", g.outside, []string{"10.0.0.2:80", "[fd00::2]:80"}, 0},
					{"from outside, forwarded", g.outside, []string{"172.17.0.2:80", "[fd17::2]:80"}, 0},
					{"loopback", g.host, []string{"127.0.0.1:80", "127.0.0.1:81"}, 0},
					{"of the host, to another device", g.host, []string{"172.17.0.2:80", "[fd17::2]:80"}, 2},
					{"of the host, to outside", g.host, []string{"10.0.0.1:80", "[fd00::1]:80"}, 2},
				} {
					g.connect(c.name, c.from, c.to, c.tracked)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// gateway is a host between the outside, on eth0, and a container.
type gateway struct {
	*testing.T
	outside, host, container *lab.Host
}

func newGateway(t *testing.T, l *lab.Lab) *gateway {
	g := &gateway{T: t}
	for name, h := range map[string]**lab.Host{"outside": &g.outside, "host": &g.host, "container": &g.container} {
		var err error
		if *h, err = l.Host(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.host.Router(); err != nil {
		t.Fatal(err)
	}
	g.link(l, g.outside, "eth0", [2]string{"10.0.0.1/24 fd00::1/64", "10.0.0.2/24 fd00::2/64"}, "172.17.0.0/24", "fd17::/64")
	g.link(l, g.container, "docker0", [2]string{"172.17.0.2/24 fd17::2/64", "172.17.0.1/24 fd17::1/64"}, "10.0.0.0/24", "fd00::/64")
	for _, h := range []*lab.Host{g.outside, g.host, g.container} {
		for _, port := range []uint16{80, 81} {
			g.serve(h, netip.AddrPortFrom(netip.IPv6Unspecified(), port))
		}
	}
	return g
}

// link connects another host to the gateway. The other host gets routes to the prefixes in behind through the gateway.
func (g *gateway) link(l *lab.Lab, other *lab.Host, device string, addresses [2]string, behind ...string) {
	g.Helper()
	dev, end, err := l.Connect(other, g.host, lab.LinkOptions{
		A: lab.EndOptions{Addrs: lab.ParseAddrs(addresses[0])},
		B: lab.EndOptions{Name: device, Addrs: lab.ParseAddrs(addresses[1])},
	})
	if err != nil {
		g.Fatal(err)
	}
	for i, prefix := range behind {
		if err := other.Route(netip.MustParsePrefix(prefix), end.Addrs[i].Addr(), dev); err != nil {
			g.Fatal(err)
		}
	}
}

// serve accepts connections to a port of a host, and closes each at once.
func (g *gateway) serve(h *lab.Host, at netip.AddrPort) {
	g.Helper()
	l, err := h.Listen(at)
	if err != nil {
		g.Fatal(err)
	}
	testutil.Serve(g.T, l, func(net.Conn) {})
}

// load loads the netfilter rules of a policy in the gateway. It returns a function that removes them.
func (g *gateway) load(target plan.Target, policy string) (remove func()) {
	g.Helper()
	s := subject.Lower(g.T, policy)
	pl, err := plan.Hoist(s.Program, target)
	if err != nil {
		g.Fatal(err)
	}
	rules, err := (&differential{target: target}).compile(s, pl)
	if err != nil {
		g.Fatal(err)
	}
	err = g.host.Do(func() error {
		for _, l := range append(rules.loads, load{[]string{"nft", "-f", "-"}, foreign}) {
			l.run(g.T, s.Policy)
		}
		return nil
	})
	if err != nil {
		g.Fatal(err)
	}
	return func() {
		g.host.Do(func() error {
			for _, l := range append(rules.undo, load{[]string{"nft", "-f", "-"}, "delete table inet other"}) {
				l.run(g.T, s.Policy)
			}
			return nil
		})
	}
}

// connect makes connections, which must all succeed, and checks how many of them the gateway's conntrack follows then.
func (g *gateway) connect(name string, from *lab.Host, to []string, tracked int) {
	g.Helper()
	made := map[string]bool{} // both ends of each connection, in either order; conntrack may also follow a late packet of an earlier connection
	for _, address := range to {
		ctx, cancel := context.WithTimeout(g.Context(), time.Minute)
		c, err := from.Dial(ctx, "tcp", netip.MustParseAddrPort(address))
		cancel()
		if err != nil {
			g.Errorf("%s: %v", name, err)
			continue
		}
		client, server := c.LocalAddr().String(), c.RemoteAddr().String()
		made[client+" "+server], made[server+" "+client] = true, true
		readEnd(c)
	}
	seen := map[string]bool{} // a listing may contain an entry twice if entries are added and removed at the same time
	n := g.tracked(func(f *netlink.ConntrackFlow) bool {
		from, to := net.TCPAddr{IP: f.Forward.SrcIP, Port: int(f.Forward.SrcPort)}, net.TCPAddr{IP: f.Forward.DstIP, Port: int(f.Forward.DstPort)}
		ends := from.String() + " " + to.String()
		again := seen[ends]
		seen[ends] = true
		return !again && made[ends]
	})
	if n != tracked {
		g.Errorf("%s: %d connections are tracked, want %d: %v", name, n, tracked, slices.Collect(maps.Keys(seen)))
	}
}

// tracked counts the connections that the gateway's conntrack follows.
func (g *gateway) tracked(counts func(*netlink.ConntrackFlow) bool) (n int) {
	g.Helper()
	flows, err := g.host.Tracked()
	if err != nil {
		g.Fatal(err)
	}
	for _, f := range flows {
		if counts(f) {
			n++
		}
	}
	return n
}

// readEnd waits until the other side has closed, and closes.
func readEnd(c net.Conn) {
	c.SetReadDeadline(time.Now().Add(time.Minute))
	c.Read(make([]byte, 1))
	c.Close()
}
