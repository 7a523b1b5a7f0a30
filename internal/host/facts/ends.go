// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// MACs lists the Ethernet addresses for which this host accepts frames on the given devices. These are the addresses of the devices, and of the
// VLANs, macvlans, bridges and bonds on top of them.
func MACs(devices []string) (macs []net.HardwareAddr, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	for _, l := range takers(links, devices) {
		if mac := l.Attrs().HardwareAddr; !slices.ContainsFunc(macs, func(m net.HardwareAddr) bool { return slices.Equal(m, mac) }) {
			macs = append(macs, mac)
		}
	}
	return macs, nil
}

// takers returns the named devices, the ports of named bonds, on which XDP runs instead of on the bond, and all devices on top of any of these. The
// named devices come first.
func takers(links []netlink.Link, names []string) (found []netlink.Link) {
	add := func(which func(netlink.Link) bool) {
		for _, l := range links {
			if which(l) && !slices.Contains(found, l) {
				found = append(found, l)
			}
		}
	}
	add(func(l netlink.Link) bool { return slices.Contains(names, l.Attrs().Name) })
	for _, of := range slices.Clone(found) {
		add(func(l netlink.Link) bool { return l.Attrs().MasterIndex == of.Attrs().Index })
	}
	for i := 0; i < len(found); i++ {
		below := found[i].Attrs()
		add(func(l netlink.Link) bool {
			a := l.Attrs()
			return a.Index == below.MasterIndex || a.ParentIndex == below.Index && l.Type() != "veth" // the parent of a veth is the veth's other end
		})
	}
	return found
}

// Broadcasts lists the broadcast addresses of this host's IPv4 networks: the highest address of each network, as the kernel derives it
// (fib_add_ifaddr of net/ipv4/fib_frontend.c), and the configured ones.
func Broadcasts() (list []netip.Addr, err error) {
	own, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("listing own addresses: %w", err)
	}
	for _, a := range own {
		if bits, of := a.Mask.Size(); of == 32 && bits < 31 {
			var last [4]byte
			binary.BigEndian.PutUint32(last[:], binary.BigEndian.Uint32(a.IP.To4())|^uint32(0)>>bits)
			list = append(list, netip.AddrFrom4(last))
		}
		if set, ok := netip.AddrFromSlice(a.Broadcast.To4()); ok && !a.Broadcast.IsUnspecified() {
			list = append(list, set)
		}
	}
	return list, nil
}
