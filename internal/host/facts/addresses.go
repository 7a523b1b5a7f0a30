package facts

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// OwnAddresses lists the addresses of all devices in this network namespace.
func OwnAddresses() ([]netip.Addr, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing own addresses: %w", err)
	}
	var own []netip.Addr
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			own = append(own, addr.Unmap())
		}
	}
	return own, nil
}

// Lifeline is an address or prefix that this host cannot do without.
type Lifeline struct {
	Prefix netip.Prefix
	Own    bool // it is an address of the host
	Fleet  bool // it is a hub or another node of the fleet
}

// Lifelines lists what this host cannot do without: its own addresses, and those of its links, gateways, resolvers, DHCP servers,
// sessions, and of the hubs and nodes of its fleet. What cannot be read is left out.
func Lifelines() (list []Lifeline) {
	own, _ := OwnAddresses()
	for _, a := range own {
		list = append(list, Lifeline{Prefix: netip.PrefixFrom(a, a.BitLen()), Own: true})
	}
	for _, a := range System.Fleet() {
		list = append(list, Lifeline{Prefix: netip.PrefixFrom(a, a.BitLen()), Fleet: true})
	}
	found, _ := System.Find()
	for _, p := range found {
		list = append(list, Lifeline{Prefix: p})
	}
	return list
}
