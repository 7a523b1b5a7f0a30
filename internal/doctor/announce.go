// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/internal/os/sockets"
)

const announcesID = "synproxy-announces"

// synproxyAnnounces compares the options in SYNPROXY rules of other firewalls with the server's options. Floodwall's own rules are compared by
// synproxyOptions.
func synproxyAnnounces(_ context.Context, h *host) []Finding {
	rules, _ := h.saved() // savedRules reports rules that could not be read
	var found []Finding
	proxies, _ := routesOf(rules, savedRule.synproxies)
	for i, r := range proxies {
		if slices.ContainsFunc(proxies[:i], func(o savedRule) bool {
			return o.within(o.Chain) == r.within(r.Chain) && o.Text == r.Text && o.Hook == r.Hook
		}) {
			continue // the same rule, reached on another path
		}
		f, err := r.announces()
		if err != nil {
			return append(found, unseen(announcesID, err))
		}
		if f.Severity != OK {
			found = append(found, f)
		}
	}
	if found == nil {
		found = []Finding{{ID: announcesID, Severity: OK, Evidence: "no SYNPROXY rule announces what its server does not have (from nft and iptables-save)"}}
	}
	return found
}

// announces compares the options in a SYNPROXY rule with those that this host's kernel supports, if the server is on this host.
func (r savedRule) announces() (Finding, error) {
	f := Finding{ID: announcesID, Severity: OK, Numbers: map[string]uint64{}, Evidence: fmt.Sprintf("the rule %q of table %s", r.Text, r.Table)}
	listening, err := r.listeners()
	if err != nil {
		return f, err
	}
	if r.Hook == "forward" || len(listening) == 0 {
		f.Severity = Note
		f.Evidence += map[bool]string{true: " is about servers behind this host", false: " is about a port that no socket of this host listens at"}[r.Hook == "forward"]
		f.Cost = "with an MSS or a window scale that the server does not have, connections stall or are slow; what it has cannot be known here"
		return f.advice("on the server: `ss -tino state listening`, `ip route get` of a client for its advmss or MTU, and `sysctl net.ipv4.tcp_rmem`; or read " +
			"its SYN-ACK with `tcpdump -nv 'tcp[tcpflags] & (tcp-syn|tcp-ack) == (tcp-syn|tcp-ack)'`. The rule must have its MSS, window scale, SACK and timestamps"), nil
	}
	has, err := r.server(listening)
	if err != nil {
		return f, err
	}
	return r.compare(f, has), nil
}

// listeners returns the listening TCP sockets that a rule protects.
func (r savedRule) listeners() (list []sockets.Socket, err error) {
	all, err := sockets.Serving()
	_, ports := r.ports()
	for _, s := range all {
		at := portSpans{ranges.Span(uint32(s.Port), uint32(s.Port))}
		family := r.Family != "ip" || s.Addr.Unmap().Is4() || s.Addr.IsUnspecified()
		if s.Proto == unix.IPPROTO_TCP && !s.Addr.IsLoopback() && len(at.without(ports)) == 0 && family && (r.Family != "ip6" || s.Addr.Is6()) {
			list = append(list, s)
		}
	}
	return list, err
}

// serverHas has the options that the kernel announces in SYN-ACKs for sockets.
type serverHas struct {
	facts.TCP
	mss  int // the smallest MSS
	from string
}

// server returns the kernel's options for listening sockets. The MSS depends on the routes from each address to clients.
func (r savedRule) server(listening []sockets.Socket) (has serverHas, err error) {
	has.TCP = facts.ReadTCP()
	for _, s := range listening {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			four := family == netlink.FAMILY_V4
			if r.Family == "ip" && !four || r.Family == "ip6" && four || !s.Addr.IsUnspecified() && s.Addr.Unmap().Is4() != four || s.Addr == netip.IPv4Unspecified() && !four {
				continue
			}
			mss, from, err := routeMSS(family, s.Addr.Unmap())
			if err != nil {
				return has, err
			}
			if mss > 0 && (has.mss == 0 || mss < has.mss) {
				has.mss, has.from = mss, from
			}
		}
	}
	return has, nil
}

// Addresses of the Internet, for route lookups. No packet is sent.
var internet = map[int]net.IP{netlink.FAMILY_V4: net.IPv4(1, 1, 1, 1), netlink.FAMILY_V6: net.ParseIP("2000::1")}

// routeMSS returns the MSS that a socket at an address announces to clients. It depends on the default route or, without one, on the network of an
// own address. It is 0 when this host has no address of the family. from describes the route.
func routeMSS(family int, at netip.Addr) (mss int, from string, err error) {
	var options *netlink.RouteGetOptions
	if !at.IsUnspecified() {
		options = &netlink.RouteGetOptions{SrcAddr: at.AsSlice()}
	}
	header := map[int]int{netlink.FAMILY_V4: 40, netlink.FAMILY_V6: 60}[family]
	if mss, from = mssTo(internet[family], options, header); mss > 0 {
		return mss, from, nil
	}
	own, err := netlink.AddrList(nil, family)
	if err != nil {
		return 0, "", fmt.Errorf("listing own addresses: %w", err)
	}
	for _, a := range own {
		if a.IP.IsLoopback() || a.IP.IsLinkLocalUnicast() || !at.IsUnspecified() && !a.IP.Equal(at.AsSlice()) {
			continue
		}
		m, f := mssTo(neighbor(a.IPNet), options, header)
		if m > 0 && (mss == 0 || m < mss) {
			mss, from = m, f
		}
	}
	return mss, from, nil
}

// neighbor returns another address in the network of an address.
func neighbor(n *net.IPNet) net.IP {
	other := slices.Clone(n.IP)
	other[len(other)-1] ^= 2
	return other
}

// mssTo returns the MSS on the route to an address: the advmss of the route, or its MTU minus the headers. It returns 0 when there is no route.
func mssTo(to net.IP, options *netlink.RouteGetOptions, header int) (mss int, from string) {
	routes, err := netlink.RouteGetWithOptions(to, options)
	if err != nil || len(routes) == 0 {
		return 0, ""
	}
	r := routes[0]
	link, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil || link.Attrs().Flags&net.FlagLoopback != 0 {
		return 0, ""
	}
	if r.AdvMSS > 0 {
		return r.AdvMSS, "the route's advmss by " + link.Attrs().Name
	}
	mtu := cmp.Or(r.MTU, link.Attrs().MTU)
	return mtu - header, fmt.Sprintf("the MTU %d by %s", mtu, link.Attrs().Name)
}

var (
	announcedMSS    = regexp.MustCompile(`\bmss (\d+)`)
	announcedWScale = regexp.MustCompile(`\bwscale (\d+)`)
)

// said returns the number in a rule that the pattern what matches. It returns -1 when there is none.
func (r savedRule) said(what *regexp.Regexp) int {
	m := what.FindStringSubmatch(r.Text)
	if m == nil {
		return -1
	}
	n, _ := strconv.Atoi(m[1]) // the pattern matches only digits
	return n
}

// compare completes the finding about a rule whose server is this host.
func (r savedRule) compare(f Finding, has serverHas) Finding {
	var differs, want []string
	var broken []Kind
	differ := func(k Kind, breaks bool, is, should string) {
		differs, want = append(differs, is), append(want, should)
		if breaks && !slices.Contains(broken, k) {
			broken = append(broken, k)
		}
	}
	option := func(name string) string { return map[bool]string{true: "--"}[r.Iptables] + name }
	if mss := r.said(announcedMSS); mss >= 0 && has.mss > 0 && mss != has.mss {
		f.Numbers["mss"], f.Numbers["server_mss"] = uint64(mss), uint64(has.mss)
		differ(KindMSS, mss > has.mss, fmt.Sprintf("MSS %d, and the server's is %d (%s)", mss, has.mss, has.from), fmt.Sprintf("%s %d", option("mss"), has.mss))
	}
	switch wscale := r.said(announcedWScale); {
	case wscale >= 0 && !has.WindowScaling:
		differ(KindWScale, true, "a window scale, and net.ipv4.tcp_window_scaling is 0", "no "+option("wscale"))
	case wscale >= 0 && wscale != int(has.WScale):
		f.Numbers["wscale"], f.Numbers["server_wscale"] = uint64(wscale), uint64(has.WScale)
		differ(KindWScale, wscale > int(has.WScale), fmt.Sprintf("window scale %d, and the server's is %d (net.ipv4.tcp_rmem, net.core.rmem_max)", wscale, has.WScale),
			fmt.Sprintf("%s %d", option("wscale"), has.WScale))
	}
	for _, o := range []struct {
		name, setting string
		has           bool
	}{{"timestamp", "tcp_timestamps", has.Timestamps != 0}, {"sack-perm", "tcp_sack", has.SACK}} {
		if r.word(option(o.name)) && !o.has {
			differ(KindOption, true, fmt.Sprintf("%s, and net.ipv4.%s is 0", o.name, o.setting), "no "+option(o.name))
		}
	}
	if differs == nil {
		return f
	}
	f.Severity, f.Cost = Note, "connections do not use all that their server can"
	if broken != nil {
		f.Severity, f.Cost = Warning, costOf(broken)
	}
	f.Evidence += " announces " + strings.Join(differs, "; ")
	return f.advice("the rule must have " + strings.Join(want, ", "))
}
