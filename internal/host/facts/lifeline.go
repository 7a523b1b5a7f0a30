// SPDX-License-Identifier: Apache-2.0

// This file finds the addresses without which the host is cut off. Only forged packets can lead to a ban of such an address. They are the host's own
// addresses, the addresses of its links, gateways, resolvers and DHCP servers, and the addresses from which its operators are logged in.

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

// Files are the paths of files with data that the kernel does not have.
type Files struct {
	Resolvers []string // resolv.conf(5)
	Sessions  string   // the directory of systemd-logind's sessions
	Users     string   // utmp(5)
	Leases    []string // patterns of the lease files of DHCP clients
	Fleets    string   // pattern of the files with the addresses of a fleet's hubs and nodes, one a line; daemons write them
}

// System has the usual paths. Under systemd-resolved, /etc/resolv.conf names only systemd-resolved, whose servers are in its own file.
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

// Find lists the addresses that this network namespace needs according to the kernel, and that the host needs according to its files, sorted. If a
// source cannot be read, Find returns an error together with the rest of the list.
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

// appendHost appends a single address as a prefix.
func appendHost(list []netip.Prefix, a netip.Addr) []netip.Prefix {
	a = a.Unmap().WithZone("")
	if !a.IsValid() || a.IsUnspecified() {
		return list
	}
	return append(list, netip.PrefixFrom(a, a.BitLen()))
}

// linkPrefixes returns the prefixes of the host's addresses on its links, and the addresses of peers.
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

// gateways returns the next hops of the routes for which of returns true.
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

// resolvers returns the name servers in a file in the format of resolv.conf(5). It returns nil when there is no such file.
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

// Fleet returns the addresses of the hubs and the other nodes of the fleets of this host.
func (f Files) Fleet() (list []netip.Addr) {
	files, _ := filepath.Glob(f.Fleets) // the pattern is well-formed
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

// loginSessions returns the client addresses of the sessions of systemd-logind, which sshd has authenticated. The files belong to root, so no local
// user can add addresses.
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
