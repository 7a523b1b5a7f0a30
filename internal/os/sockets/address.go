// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// OwnAddresses returns the addresses of all devices in the network namespace of the calling thread.
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
