// SPDX-License-Identifier: Apache-2.0

package firstpolicy

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestTunnels has tunnels and IPsec states, and checks the rules for them. Only devices that are up, and states for packets to this host, may have
// rules.
func TestTunnels(t *testing.T) {
	up := func(name string) netlink.LinkAttrs { return netlink.LinkAttrs{Name: name, Flags: net.FlagUp} }
	ip := net.ParseIP
	links := []netlink.Link{
		&netlink.Gretun{LinkAttrs: up("gre1"), Local: ip("192.0.2.1"), Remote: ip("203.0.113.9")},
		&netlink.Gretap{LinkAttrs: up("tap1"), Local: ip("192.0.2.1"), Remote: ip("203.0.113.10")},
		&netlink.Gretun{LinkAttrs: netlink.LinkAttrs{Name: "gre0"}, Local: ip("0.0.0.0"), Remote: ip("0.0.0.0")},
		&netlink.Sittun{LinkAttrs: up("he"), Remote: ip("203.0.113.11")},
		&netlink.Iptun{LinkAttrs: up("any"), Remote: ip("0.0.0.0")},
		&netlink.Iptun{LinkAttrs: up("fou"), Remote: ip("203.0.113.12"), EncapType: 1},
		&netlink.Ip6tnl{LinkAttrs: up("six"), Remote: ip("2001:db8::9"), Proto: 41},
		&netlink.Dummy{LinkAttrs: up("dummy0")},
	}
	states := []netlink.XfrmState{
		{Proto: netlink.XFRM_PROTO_ESP, Src: ip("203.0.113.20"), Dst: ip("192.0.2.1")},
		{Proto: netlink.XFRM_PROTO_ESP, Src: ip("192.0.2.1"), Dst: ip("203.0.113.20")}, // an outbound state
		{Proto: netlink.XFRM_PROTO_ESP, Src: ip("203.0.113.21"), Dst: ip("192.0.2.1"), Encap: &netlink.XfrmStateEncap{}},
	}
	own := func(a net.IP) bool { return a.Equal(ip("192.0.2.1")) }
	h := &Host{Devices: []string{"eth0"}, Carriers: append(upTunnels(links), ipsecCarriers(states, own)...)}
	var b strings.Builder
	h.Decrypted = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("2001:db8:2::/48")}
	print := func(format string, words ...any) { fmt.Fprintf(&b, format+"\n", words...) }
	h.tunnels(print)
	h.decrypted(print)
	want := `  # The kernel receives GRE for gre1, tap1.
  - {name: tunnel-47, proto: 47, from: [203.0.113.9, 203.0.113.10], then: pass}
  # The kernel receives IPv6 in IP for he, six.
  - {name: tunnel-41, proto: 41, from: [203.0.113.11, 2001:db8::9], then: pass}
  # The kernel receives IPIP for any.
  - {name: tunnel-4, proto: 4, then: pass}
  # The kernel receives ESP for IPsec.
  - {name: tunnel-50, proto: 50, from: [203.0.113.20], then: pass}
  # IPsec decrypts the packets of these networks by policies. The kernel drops others that claim to be of them.
  - {name: ipsec, from: [10.2.0.0/16, 2001:db8:2::/48], then: pass}
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
