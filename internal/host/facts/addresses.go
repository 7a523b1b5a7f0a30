// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/netip"

	"github.com/floodwall/floodwall/internal/os/sockets"
)

// Lifeline is an address or prefix that this host needs.
type Lifeline struct {
	Prefix netip.Prefix
	Own    bool // whether it is an own address of the host
	Fleet  bool // whether it is a hub or another node of the fleet
}

// Lifelines lists the addresses and prefixes that this host needs: its own addresses, and those of its links, gateways, resolvers, DHCP servers,
// sessions, and of the hubs and nodes of its fleet. It leaves out sources that cannot be read.
func Lifelines() (list []Lifeline) {
	own, _ := sockets.OwnAddresses()
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
