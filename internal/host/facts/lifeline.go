// This file finds the addresses without which the host it runs on is cut off, and which nobody but a forger has
// banned: its own and those of its links, its gateways, resolvers and DHCP servers, and where its operators are logged in from.

package facts

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// Files are where a host says what cannot be asked of the kernel.
type Files struct {
	Resolvers []string // resolv.conf(5)
	Sessions  string   // the directory of systemd-logind's sessions
	Users     string   // utmp(5)
	Leases    []string // patterns of the files in which DHCP clients keep their leases
	Fleets    string   // pattern of the files in which daemons keep the addresses of the hubs and nodes of their fleets, one a line
}

// System is where these files are. systemd-resolved writes itself into /etc/resolv.conf, and whom it asks into its own.
var System = Files{
	Resolvers: []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"},
	Sessions:  "/run/systemd/sessions",
	Fleets:    "/run/floodwall/fleet*.addresses",
	Users:     "/run/utmp",
	Leases: []string{
		"/run/systemd/netif/leases/*",                                                // systemd-networkd
		"/var/lib/dhcp/dhclient*.leases",                                             // dhclient
		"/var/lib/NetworkManager/*.lease",                                            // NetworkManager, with dhclient or its own client
		"/var/lib/dhcpcd/*.lease", "/var/lib/dhcpcd5/*.lease", "/run/dhcpcd/*.lease", // dhcpcd
	},
}

// Find lists what this network namespace, and the host by its files, cannot do without, sorted. What cannot be read is
// returned as an error beside what can.
func (f Files) Find() ([]netip.Prefix, error) {
	links, errLinks := linkPrefixes()
	gateways, errGateways := gateways(func(*netlink.Route) bool { return true }, netlink.FAMILY_V4, netlink.FAMILY_V6)
	found := slices.Concat(links, gateways)
	for _, file := range f.Resolvers {
		found = append(found, resolvers(file)...)
	}
	for _, a := range slices.Concat(loginSessions(f.Sessions), utmpSessions(f.Users), f.leaseServers(), f.Fleet()) {
		found = appendHost(found, a)
	}
	slices.SortFunc(found, netip.Prefix.Compare)
	return slices.Compact(found), errors.Join(errLinks, errGateways)
}

// appendHost adds an address that is one host's.
func appendHost(list []netip.Prefix, a netip.Addr) []netip.Prefix {
	a = a.Unmap().WithZone("")
	if !a.IsValid() || a.IsUnspecified() {
		return list
	}
	return append(list, netip.PrefixFrom(a, a.BitLen()))
}

// linkPrefixes are the prefixes of the host's addresses, which its links have, and with a peer the peer's.
func linkPrefixes() (list []netip.Prefix, err error) {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing own addresses: %w", err)
	}
	for _, a := range addresses {
		for _, n := range []*net.IPNet{a.IPNet, a.Peer} {
			if p, ok := prefixOf(n); ok {
				list = append(list, p)
			}
		}
		if own, ok := netip.AddrFromSlice(a.IP); ok {
			list = appendHost(list, own)
		}
	}
	return list, nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	if a = a.Unmap(); !ok || ones == 0 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, ones).Masked(), true
}

// gateways are the next hops of the routes for which of holds.
func gateways(of func(*netlink.Route) bool, families ...int) (list []netip.Prefix, err error) {
	seen := map[netip.Addr]bool{}
	add := func(ip net.IP) {
		if a, ok := netip.AddrFromSlice(ip); ok && !seen[a] {
			seen[a] = true
			list = appendHost(list, a)
		}
	}
	for _, family := range families {
		err := netlink.RouteListFilteredIter(family, &netlink.Route{}, 0, func(r netlink.Route) bool {
			if !of(&r) {
				return true
			}
			add(r.Gw)
			if via, ok := r.Via.(*netlink.Via); ok {
				add(via.Addr)
			}
			for _, hop := range r.MultiPath {
				add(hop.Gw)
			}
			return true
		})
		if err != nil {
			return list, fmt.Errorf("listing routes: %w", err)
		}
	}
	return list, nil
}

// resolvers are the name servers of a file as resolv.conf(5) has them; none when there is no such file.
func resolvers(file string) (list []netip.Prefix) {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			list = appendHost(list, a)
		}
	}
	return list
}

// Fleet are the hubs and the other nodes of the fleets of this host.
func (f Files) Fleet() (list []netip.Addr) {
	files, _ := filepath.Glob(f.Fleets) // the pattern is not malformed
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if a, err := netip.ParseAddr(strings.TrimSpace(line)); err == nil {
				list = append(list, a)
			}
		}
	}
	return list
}

// loginSessions are where sessions that systemd-logind knows come from: sshd has told it who was let in. The files are the
// superuser's, so no local user has others spared.
func loginSessions(dir string) (list []netip.Addr) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		values := map[string]string{}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			values[key] = value
		}
		if a, err := netip.ParseAddr(values["REMOTE_HOST"]); err == nil && values["STATE"] != "closing" {
			list = append(list, a)
		}
	}
	return list
}
