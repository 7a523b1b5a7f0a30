// SPDX-License-Identifier: Apache-2.0

package firstpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/internal/os/sockets"
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

// publish adds ports that the host's NAT redirects, for example to containers, unless a program of the host serves the port. It leaves out ports that
// only the host itself can reach, and long ranges.
func (h *Host) publish(list []netfilter.Translation) {
	for _, t := range list {
		if strings.Contains(t.Rule, "-d 127.") || strings.Contains(t.Rule, "daddr 127.") {
			continue
		}
		for _, r := range single(t.Ports) {
			for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
				s := Service{sockets.Service{Proto: proto, Port: uint16(r.First)}, "", cmp.Or(exposed.PlainName(strings.Join(t.To, " and ")), "another host")}
				if t.Proto != 0 && t.Proto != proto || r.First != r.Last || h.serves(s) {
					continue
				}
				*h.listFor(s) = append(*h.listFor(s), s)
			}
		}
	}
}

// longest is how many ports a range may have whose ports become services of their own.
const longest = 16

// single divides short ranges of ports into their ports. Neighbours such as 80 and 81 in a list of one rule are such a range.
func single(list []ranges.Range) (ports []ranges.Range) {
	for _, r := range list {
		if r.Last-r.First >= longest {
			ports = append(ports, r)
			continue
		}
		for n := r.First; n <= r.Last; n++ {
			ports = append(ports, ranges.Range{First: n, Last: n})
		}
	}
	return ports
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
		p("  # A raw socket listens for %s.", exposed.ProtocolName(n))
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
