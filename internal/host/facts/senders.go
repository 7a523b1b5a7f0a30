// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Senders lists the expected senders on devices. unasked are senders that send by themselves: the networks of the devices' addresses, and the DHCP
// servers of this host. `asked` are senders that only answer: the resolvers. Senders leaves out sources that cannot be read.
func (f Files) Senders(devices []string) (unasked, asked []netip.Prefix) {
	for _, name := range devices {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			continue
		}
		list, _ := netlink.AddrList(dev, netlink.FAMILY_ALL)
		for _, a := range list {
			if p, ok := prefixOf(a.IPNet); ok && !p.Addr().IsLinkLocalUnicast() {
				unasked = append(unasked, p)
			}
		}
	}
	servers, _ := f.DHCPServers()
	for _, a := range servers {
		unasked = appendUnless(unasked, netip.PrefixFrom(a, a.BitLen()))
	}
	for _, file := range f.Resolvers {
		for _, p := range resolvers(file) {
			if !p.Addr().IsLoopback() { // a loopback resolver is a stub on this host
				asked = appendUnless(asked, p)
			}
		}
	}
	return unasked, asked
}

// appendUnless appends a prefix, unless the list already has this prefix or one that contains it.
func appendUnless(list []netip.Prefix, p netip.Prefix) []netip.Prefix {
	if slices.ContainsFunc(list, func(in netip.Prefix) bool { return in.Bits() <= p.Bits() && in.Contains(p.Addr()) }) {
		return list
	}
	return append(list, p)
}
