// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// host is the part of the host's configuration, besides the rules, that the copy needs.
type host struct {
	devices  []string
	links    []netlink.Link  // all devices of the host
	local    []netlink.Route // the local routes of the question's family
	six      bool            // whether the question's family is IPv6
	settings [][2]string     // files under /proc/sys/net and their contents, in the order of writing
}

// readHost reads the configuration that a copy for the given devices and one family needs. It must run in the host's namespace.
func readHost(devices []string, six bool) (*host, error) {
	h := &host{devices: devices, six: six}
	var err error
	if h.links, err = netlink.LinkList(); err != nil {
		return nil, fmt.Errorf("listing devices: %w", err)
	}
	family := netlink.FAMILY_V4
	if six {
		family = netlink.FAMILY_V6
	}
	filter := &netlink.Route{Table: unix.RT_TABLE_LOCAL}
	if h.local, err = netlink.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE); err != nil {
		return nil, fmt.Errorf("listing own addresses: %w", err)
	}
	for _, name := range settings(devices) {
		if value, err := os.ReadFile(filepath.Join(sysctls, name)); err == nil {
			h.settings = append(h.settings, [2]string{name, string(value)})
		}
	}
	return h, nil
}

const sysctls = "/proc/sys/net"

// settings returns the files with settings that decide whether the kernel drops, forwards or tracks a packet.
func settings(devices []string) (names []string) {
	for _, of := range append([]string{"all"}, devices...) {
		for _, name := range []string{"forwarding", "accept_local", "accept_source_route", "route_localnet"} {
			names = append(names, "ipv4/conf/"+of+"/"+name)
		}
		names = append(names, "ipv6/conf/"+of+"/forwarding", "ipv6/conf/"+of+"/accept_source_route")
	}
	return append(names, "netfilter/nf_conntrack_tcp_loose", "netfilter/nf_conntrack_checksum")
}

// furnish creates the devices, settings and routes in the namespace of the question, so that the namespace accepts the frame.
func (h *host) furnish(frame []byte) error {
	if err := setUp("lo"); err != nil {
		return err
	}
	for i, name := range h.devices {
		if err := addDevice(name, fmt.Sprintf("floodwall%d", i), frame); err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
	}
	if err := h.addVLANs(); err != nil {
		return err
	}
	for _, s := range append(h.settings, [2]string{"ipv4/conf/all/rp_filter", "0"}) {
		if err := set(s[0], s[1]); err != nil {
			return err
		}
	}
	return h.addRoutes()
}

// addDevice creates a veth pair. The end with the given name accepts frames like this one. Neither end sends packets by itself.
func addDevice(name, peer string, frame []byte) error {
	const largest = 65535 // bytes; any IP packet fits
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, largest
	if mac := net.HardwareAddr(frame[:6]); mac[0]&1 == 0 && slices.ContainsFunc(mac, func(b byte) bool { return b != 0 }) {
		attrs.HardwareAddr = mac
	}
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = peer, largest
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("making it: %w", err)
	}
	for _, s := range [][2]string{
		{"ipv6/conf/" + peer + "/disable_ipv6", "1"},
		{"ipv6/conf/" + name + "/addr_gen_mode", "1"}, // no link-local address, so that the device announces none
		{"ipv4/conf/" + name + "/rp_filter", "0"},
	} {
		if err := set(s[0], s[1]); err != nil {
			return err
		}
	}
	for _, end := range []string{name, peer} {
		link, err := netlink.LinkByName(end)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetARPOff(link); err != nil {
			return fmt.Errorf("setting ARP off: %w", err)
		}
		if err := setUp(end); err != nil {
			return err
		}
	}
	return nil
}

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("setting device %s up: %w", name, err)
	}
	return nil
}

// set writes a setting. It ignores a missing setting, which this kernel does not have.
func set(name, value string) error {
	err := os.WriteFile(filepath.Join(sysctls, name), []byte(strings.TrimSpace(value)), 0o644)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("setting %s: %w", name, err)
	}
	return nil
}

// addVLANs creates copies of the host's VLAN devices on the copied devices, and of VLAN devices on top of these.
func (h *host) addVLANs() error {
	copied := slices.Clone(h.devices)
	for i := 0; i < len(copied); i++ {
		for _, l := range h.links {
			vlan, ok := l.(*netlink.Vlan)
			if !ok || h.name(vlan.ParentIndex) != copied[i] || slices.Contains(copied, vlan.Name) {
				continue
			}
			if err := addVLAN(vlan, copied[i]); err != nil {
				return fmt.Errorf("device %s: %w", vlan.Name, err)
			}
			copied = append(copied, vlan.Name)
		}
	}
	return nil
}

func addVLAN(like *netlink.Vlan, parentName string) error {
	parent, err := netlink.LinkByName(parentName)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = like.Name, parent.Attrs().Index
	if err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: like.VlanId, VlanProtocol: like.VlanProtocol}); err != nil {
		return fmt.Errorf("making it: %w", err)
	}
	for _, s := range [][2]string{{"ipv6/conf/" + like.Name + "/addr_gen_mode", "1"}, {"ipv4/conf/" + like.Name + "/rp_filter", "0"}} {
		if err := set(s[0], s[1]); err != nil {
			return err
		}
	}
	return setUp(like.Name)
}

// name returns the name of the host's device with an index. It returns "" when there is none.
func (h *host) name(index int) string {
	for _, l := range h.links {
		if l.Attrs().Index == index {
			return l.Attrs().Name
		}
	}
	return ""
}

// addRoutes adds the host's own addresses to the copy. It adds them as routes, because routes take effect at once in both families. All other packets
// are routed to the first device.
func (h *host) addRoutes() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing devices: %w", err)
	}
	index := map[string]int{}
	for _, l := range links {
		index[l.Attrs().Name] = l.Attrs().Index
	}
	for _, r := range h.local {
		if !slices.Contains([]int{unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST}, r.Type) {
			continue
		}
		on, ok := index[h.name(r.LinkIndex)]
		if !ok {
			on = index["lo"]
		}
		own := &netlink.Route{Dst: r.Dst, Type: r.Type, Table: unix.RT_TABLE_LOCAL, Scope: r.Scope, LinkIndex: on}
		if err := netlink.RouteAdd(own); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("own address %s: %w", r.Dst, err)
		}
	}
	return h.addDefault(index[h.devices[0]])
}

// addDefault adds the default route. If the kernel has no IPv6, addDefault ignores the error for IPv6, because no packet needs the route.
func (h *host) addDefault(device int) error {
	all := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if h.six {
		all = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	err := netlink.RouteAdd(&netlink.Route{Dst: all, LinkIndex: device})
	if h.six && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("default route %s: %w", all, err)
	}
	return nil
}
