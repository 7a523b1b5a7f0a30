// SPDX-License-Identifier: Apache-2.0

package firstpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/host/exposed"
)

// networks returns the networks of the devices' addresses, without duplicates.
func networks(devices []string) (list []netip.Prefix, err error) {
	for _, name := range devices {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", name, err)
		}
		addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("addresses of device %s: %w", name, err)
		}
		for _, a := range addresses {
			p, err := netip.ParsePrefix(a.IPNet.String())
			if err != nil {
				continue
			}
			if p = p.Masked(); p.Addr().IsLinkLocalUnicast() && p.Addr().Is6() {
				p = netip.MustParsePrefix("fe80::/10")
			}
			if !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	return list, nil
}

// privateNetworks returns the networks of the host with private addresses.
func (h *Host) privateNetworks() (list []netip.Prefix) {
	for _, p := range h.Networks {
		if p.Addr().IsPrivate() {
			list = append(list, p)
		}
	}
	return list
}

// publish adds ports that the host's NAT sends on, unless a program of the host serves the port.
func (h *Host) publish(list []exposed.Published) {
	for _, p := range list {
		if p.First == 0 || p.First != p.Last {
			h.Ranges = append(h.Ranges, p)
			continue
		}
		s := Service{p.Service(), "", p.To}
		if list := h.listFor(s); !h.serves(s) {
			*list = append(*list, s)
		}
	}
}

func (h *Host) serves(s Service) bool {
	return slices.ContainsFunc(slices.Concat(h.Services, h.Private), func(o Service) bool { return o.Service == s.Service })
}

// listFor returns the list to which a service for other hosts belongs.
func (h *Host) listFor(s Service) *[]Service {
	if exposed.PrivateAs(s.Service) != "" && h.privateNetworks() == nil {
		return &h.Private
	}
	return &h.Services
}

// neighbours are protocols between hosts on the same link.
var neighbours = []uint8{2, 88, 89, 103, 112}

// protocols writes rules for the protocols of raw sockets.
func (h *Host) protocols(p func(string, ...any)) {
	for _, n := range h.Raw {
		who := ""
		if slices.Contains(neighbours, n) && len(h.Networks) > 0 {
			who = fmt.Sprintf(", from: [%s]", listed(h.Networks))
		}
		p("  # A program listens for %s.", exposed.ProtocolName(n))
		p("  - {name: raw-%d, proto: %d%s, then: pass}", n, n, who)
	}
}

func listed(prefixes []netip.Prefix) string {
	var words []string
	for _, p := range prefixes {
		words = append(words, p.String())
	}
	return strings.Join(words, ", ")
}
