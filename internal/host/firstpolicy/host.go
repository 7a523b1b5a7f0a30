package firstpolicy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/os/sockets"
)

// Host is what a first policy is made of.
type Host struct {
	Devices  []string
	Services []Service
	LeftOut  []Service      // they serve, and no other host needs them
	Unsure   []Service      // of UDP, by which a program that serves at another port is likely a client of others
	Private  []Service      // they are not meant for the world, and no network of the host is private
	Networks []netip.Prefix // of the devices
	Raw      []uint8        // protocols that raw sockets listen for, by IANA's numbers
	Carriers []Carrier      // what the kernel receives without a socket
	Clients  [2]int         // the first and the last port of connections that the host opens
	Operator netip.Addr
}

// Service is a port that is served, and by which program: "" when that is not known.
type Service struct {
	sockets.Service
	Program string
	To      string // where the host's NAT sends it on to; "" for a service of the host itself
}

// ErrNoDevice says that the host has no default route, so that its devices have to be named.
var ErrNoDevice = errors.New("this host has no default route: which device packets from outside arrive at is not known")

// ReadHost asks the host. With no devices it takes those of the default routes.
func ReadHost(devices []string) (h *Host, err error) {
	h = &Host{Devices: devices, Clients: clientPorts()}
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
	for _, s := range facts.Sessions() {
		h.Operator = s.Client.Addr()
	}
	all, err := sockets.Serving()
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(all, h.maybeClient) {
		time.Sleep(query)
		again, err := sockets.Serving()
		if err != nil {
			return nil, err
		}
		all = h.staying(all, again)
	}
	if h.Networks, err = networks(h.Devices); err != nil {
		return nil, err
	}
	if h.Raw, err = sockets.RawProtocols(); err != nil {
		return nil, err
	}
	if h.Carriers, err = carriers(); err != nil {
		return nil, err
	}
	h.take(all, sockets.Programs())
	published, err := netfilter.Translations(context.Background())
	if errors.Is(err, unix.EPERM) { // who may not ask may still write a policy
		err = nil
	}
	h.publish(published)
	return h, err
}

// query is longer than most queries take: a client's socket is closed by then.
const query = time.Second

// uplinks are the devices of the default routes.
func uplinks() (names []string, err error) {
	indexes, err := facts.Uplinks(false)
	if err != nil {
		return nil, err
	}
	for _, index := range indexes {
		if link, err := netlink.LinkByIndex(index); err == nil && link.Attrs().Name != "lo" {
			names = append(names, link.Attrs().Name)
		}
	}
	return names, nil
}

// clientPorts are those that the kernel gives to connections which the host opens (net.ipv4.ip_local_port_range).
func clientPorts() [2]int {
	r := facts.Sysctl("ipv4/ip_local_port_range", 32768, 60999)
	return [2]int{r[0], r[1]}
}

// onLink are services of UDP that answer only hosts of the same link, or the host's own DHCP client, which essential rules serve.
var onLink = []uint16{68, 546, 1900, 5353, 5355}

// maybeClient reports whether the port of a socket does not tell that it serves: it is of UDP, and of those that the kernel gives to clients.
func (h *Host) maybeClient(s sockets.Socket) bool {
	return s.Proto == unix.IPPROTO_UDP && int(s.Port) >= h.Clients[0] && int(s.Port) <= h.Clients[1] && !s.Known()
}

// staying leaves out the sockets that may be a client's and are gone at a second look.
func (h *Host) staying(all, again []sockets.Socket) []sockets.Socket {
	return slices.DeleteFunc(all, func(s sockets.Socket) bool { return h.maybeClient(s) && !slices.ContainsFunc(again, s.Same) })
}

// take sorts the sockets that serve into services and what is left out. A socket on the loopback device serves no other host. A bound
// socket of UDP that stays is a service at any port, as that of a VPN is, which may belong to the kernel. It is a client's if it has a
// port of clients, and its program serves UDP at another one: so resolvers, time servers and DHCP clients ask others.
func (h *Host) take(all []sockets.Socket, programs sockets.Owners) {
	serves := map[string]bool{}
	for _, s := range all {
		if s.Proto == unix.IPPROTO_UDP && !h.maybeClient(s) {
			serves[programs.Of(s)] = true
		}
	}
	delete(serves, "") // nothing is known of these
	for _, s := range all {
		if s.Addr.IsLoopback() {
			continue
		}
		service := Service{Service: s.Service, Program: plainName(programs.Of(s))}
		list := h.listFor(service)
		switch {
		case s.Proto == unix.IPPROTO_UDP && slices.Contains(onLink, s.Port):
			list = &h.LeftOut
		case h.maybeClient(s) && serves[programs.Of(s)]:
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
