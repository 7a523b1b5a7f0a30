package firstpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/hostfacts"
	"github.com/floodwall/floodwall/internal/lifeline"
	"github.com/floodwall/floodwall/internal/sockets"
)

// Host is what a first policy is made of.
type Host struct {
	Devices   []string
	Services  []Service
	LeftOut   []Service // they serve, and no other host needs them
	Unsure    []Service // of UDP at ports that the kernel gives to clients: they may be clients
	Resolvers []netip.Addr
	Clients   [2]int // the first and the last port of connections that the host opens
	Operator  netip.Addr
}

// Service is a port that is served, and by which program: "" when that is not known.
type Service struct {
	sockets.Service
	Program string
}

// ErrNoDevice says that the host has no default route, so that its devices have to be named.
var ErrNoDevice = errors.New("this host has no default route: which device packets from outside arrive at is not known")

// Look asks the host. With no devices it takes those of the default routes.
func Look(devices []string) (h *Host, err error) {
	h = &Host{Devices: devices, Clients: clientPorts(), Resolvers: lifeline.System.NameServers()}
	if len(devices) == 0 {
		if h.Devices, err = uplinks(); err != nil {
			return nil, err
		}
	}
	if len(h.Devices) == 0 {
		return nil, ErrNoDevice
	}
	for _, name := range h.Devices {
		if _, err := netlink.LinkByName(name); err != nil {
			return nil, fmt.Errorf("device %s: %w", name, err)
		}
	}
	for _, s := range hostfacts.Sessions() {
		h.Operator = s.Client.Addr()
	}
	all, err := sockets.Serving()
	if err != nil {
		return nil, err
	}
	h.take(all, sockets.Programs())
	return h, nil
}

// uplinks are the devices of the default routes.
func uplinks() (names []string, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_DST) // no destination: the default
		if err != nil {
			return nil, fmt.Errorf("listing routes: %w", err)
		}
		for _, r := range routes {
			indices := []int{r.LinkIndex}
			for _, hop := range r.MultiPath {
				indices = append(indices, hop.LinkIndex)
			}
			for _, index := range indices {
				if link, err := netlink.LinkByIndex(index); err == nil && link.Attrs().Name != "lo" && !slices.Contains(names, link.Attrs().Name) {
					names = append(names, link.Attrs().Name)
				}
			}
		}
	}
	return names, nil
}

// clientPorts are those that the kernel gives to connections which the host opens (net.ipv4.ip_local_port_range).
func clientPorts() [2]int {
	r := hostfacts.Sysctl("ipv4/ip_local_port_range", 32768, 60999)
	return [2]int{r[0], r[1]}
}

// onLink are services of UDP that answer only hosts of the same link, or the host's own DHCP client, which essential rules serve.
var onLink = []uint16{68, 546, 1900, 5353, 5355}

// take sorts the sockets that serve into services and what is left out. A socket on the loopback device serves no other host. One of
// UDP at a port of clients may belong to a client, unless the port is known for a service, as that of WireGuard is.
func (h *Host) take(all []sockets.Socket, programs sockets.Owners) {
	for _, s := range all {
		udp := s.Proto == unix.IPPROTO_UDP
		if s.Addr.IsLoopback() {
			continue
		}
		service := Service{s.Service, plainName(programs.Of(s))}
		list := &h.Services
		switch {
		case udp && slices.Contains(onLink, s.Port):
			list = &h.LeftOut
		case udp && int(s.Port) >= h.Clients[0] && int(s.Port) <= h.Clients[1] && !s.Known():
			list = &h.Unsure
		}
		if !slices.ContainsFunc(*list, func(other Service) bool { return other.Service == s.Service }) {
			*list = append(*list, service)
		}
	}
}

// plainName is the name of a program as a comment can have it. A program may call itself anything.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= ' ' && r <= '~' {
			return r
		}
		return '?'
	}, name)
}
