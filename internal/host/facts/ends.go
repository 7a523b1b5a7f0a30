package facts

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// MACs lists the Ethernet addresses at which this host takes the frames that come by some devices: theirs, and those of the devices above
// them that take their frames, which are VLANs, macvlans, bridges and bonds.
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

// takers are the devices of these names, the ports of those that are bonds, at which XDP runs in their place, and all above any of them.
// Names come first.
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
			return a.Index == below.MasterIndex || a.ParentIndex == below.Index && l.Type() != "veth" // whose parent is its other end
		})
	}
	return found
}

// Broadcasts lists the broadcast addresses of the IPv4 networks that this host is in: the highest of each, as the kernel has them
// (fib_add_ifaddr of net/ipv4/fib_frontend.c), and those that were configured.
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
