// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// OwnAddresses returns the addresses of all devices in the network namespace of the calling thread.
func OwnAddresses() ([]netip.Addr, error) {
	networks, err := OwnNetworks()
	var own []netip.Addr
	for _, n := range networks {
		own = append(own, n.Addr())
	}
	return own, err
}

// OwnNetworks returns the addresses of this host with the lengths of their prefixes.
func OwnNetworks() ([]netip.Prefix, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing own addresses: %w", err)
	}
	var own []netip.Prefix
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			bits, _ := a.Mask.Size()
			own = append(own, netip.PrefixFrom(addr.Unmap(), bits))
		}
	}
	return own, nil
}
