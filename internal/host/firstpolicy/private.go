package firstpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/os/sockets"
)

// private are services for hosts that the owner of the service knows, by the ports that IANA or the vendors assign. Anyone else who can reach them
// often has full control of them, or uses them to amplify floods.
var private = map[string][]sockets.Service{
	"a database":          ports(unix.IPPROTO_TCP, 1433, 1521, 3306, 33060, 5432, 5984, 8086, 9042, 26257, 27017, 27018, 27019),
	"a cache":             append(ports(unix.IPPROTO_TCP, 6379, 11211, 16379, 26379), ports(unix.IPPROTO_UDP, 11211)...),
	"a search engine":     ports(unix.IPPROTO_TCP, 7700, 8983, 9200, 9300),
	"a queue":             ports(unix.IPPROTO_TCP, 1883, 2181, 4222, 4369, 5672, 9092, 15672, 25672, 61616),
	"control of machines": append(ports(unix.IPPROTO_TCP, 2375, 2376, 2379, 2380, 4646, 8500, 10250, 10255, 10257, 10259, 16509), ports(unix.IPPROTO_UDP, 623)...),
	"a monitor":           append(ports(unix.IPPROTO_TCP, 9090, 9093, 9100, 9104, 9187), ports(unix.IPPROTO_UDP, 161)...),
	"a file server":       append(ports(unix.IPPROTO_TCP, 111, 139, 445, 548, 873, 2049), ports(unix.IPPROTO_UDP, 111, 137, 138, 2049)...),
	"a directory":         append(ports(unix.IPPROTO_TCP, 389, 636), ports(unix.IPPROTO_UDP, 389)...),
	"a screen":            ports(unix.IPPROTO_TCP, 3389, 5900, 5901, 6000),
	"a printer":           ports(unix.IPPROTO_TCP, 515, 631, 9100),
}

func ports(proto uint8, list ...uint16) (services []sockets.Service) {
	for _, port := range list {
		services = append(services, sockets.Service{Proto: proto, Port: port})
	}
	return services
}

// privateAs returns the kind of a service that is not for the public. It returns "" for other services.
func privateAs(s sockets.Service) string {
	var kinds []string
	for kind, list := range private {
		if slices.Contains(list, s) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return strings.Join(kinds, " or ")
}

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
// only the host itself can reach.
func (h *Host) publish(list []netfilter.Translation) {
	for _, t := range list {
		if strings.Contains(t.Rule, "-d 127.") || strings.Contains(t.Rule, "daddr 127.") {
			continue
		}
		for _, r := range t.Ports {
			for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
				s := Service{sockets.Service{Proto: proto, Port: uint16(r.First)}, "", cmp.Or(plainName(strings.Join(t.To, " and ")), "another host")}
				if t.Proto != 0 && t.Proto != proto || r.First != r.Last || h.serves(s) {
					continue
				}
				*h.listFor(s) = append(*h.listFor(s), s)
			}
		}
	}
}

func (h *Host) serves(s Service) bool {
	return slices.ContainsFunc(slices.Concat(h.Services, h.Private), func(o Service) bool { return o.Service == s.Service })
}

// listFor returns the list to which a service for other hosts belongs.
func (h *Host) listFor(s Service) *[]Service {
	if privateAs(s.Service) != "" && h.privateNetworks() == nil {
		return &h.Private
	}
	return &h.Services
}

// rawNames are the names of protocols of raw sockets and tunnels. neighbours are protocols between hosts on the same link.
var (
	rawNames   = map[uint8]string{2: "IGMP", 4: "IPIP", 41: "IPv6 in IP", 47: "GRE", 50: "ESP", 51: "AH", 88: "EIGRP", 89: "OSPF", 103: "PIM", 112: "VRRP", 115: "L2TP", 132: "SCTP"}
	neighbours = []uint8{2, 88, 89, 103, 112}
)

func protocolName(n uint8) string { return cmp.Or(rawNames[n], fmt.Sprintf("protocol %d", n)) }

// protocols writes rules for the protocols of raw sockets.
func (h *Host) protocols(p func(string, ...any)) {
	for _, n := range h.Raw {
		who := ""
		if slices.Contains(neighbours, n) && len(h.Networks) > 0 {
			who = fmt.Sprintf(", from: [%s]", listed(h.Networks))
		}
		p("  # A raw socket listens for %s.", protocolName(n))
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
