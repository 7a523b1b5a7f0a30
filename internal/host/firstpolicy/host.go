// SPDX-License-Identifier: Apache-2.0

package firstpolicy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
)

// Host has the data for a first policy.
type Host struct {
	Devices    []string
	Services   []Service
	LeftOut    []Service           // served, but not needed by other hosts
	Unsure     []Service           // UDP ports that probably belong to a client, because their program serves on another port
	Ranges     []exposed.Published // long ranges of ports, and rules without ports, of the host's NAT
	Private    []Service           // services that are not for the public, while the host has no private network
	Networks   []netip.Prefix      // the networks of the devices' addresses
	Raw        []uint8             // protocols of raw sockets, by IANA's numbers
	Unfiltered []facts.Unfiltered  // devices beside Devices
	Carriers   []facts.Carrier     // protocols that the kernel receives without a socket
	Decrypted  []netip.Prefix      // networks whose packets IPsec decrypts by policies
	Clients    exposed.Clients
	Operator   netip.Addr
}

// Service is a port that is served. Program is the name of its program, "" when it is unknown.
type Service struct {
	sockets.Service
	Program string
	To      string // the destination of the host's NAT; "" for a service of the host itself
}

// Published returns a service of the host's NAT.
func (s Service) Published() exposed.Published {
	return exposed.Published{Port: policy.Port{Proto: s.Proto, First: s.Port, Last: s.Port}, To: s.To}
}

// ErrNoDevice says that the host has no default route, so that the user must name its devices.
var ErrNoDevice = errors.New("this host has no default route: which device packets from outside arrive at is not known")

// ReadHost reads the state of the host. If no devices are given, it uses the devices of the default routes.
func ReadHost(devices []string) (h *Host, err error) {
	h = &Host{Devices: devices, Clients: exposed.ClientPorts()}
	if len(devices) == 0 {
		if h.Devices, err = uplinks(); err != nil {
			return nil, err
		}
	}
	if len(h.Devices) == 0 {
		return nil, ErrNoDevice
	}
	for _, name := range h.Devices {
		switch _, err := netlink.LinkByName(name); {
		case errors.As(err, new(netlink.LinkNotFoundError)):
			return nil, wording.Hinted(fmt.Sprintf("this host has no device %s", wording.Quote(name)), "`ip link` lists the devices")
		case err != nil:
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
	if slices.ContainsFunc(all, func(s sockets.Socket) bool { return h.Clients.Maybe(s.Service) }) {
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
	h.Decrypted = facts.Decrypted()
	h.take(all, sockets.Programs())
	if h.Unfiltered, err = facts.UnfilteredBeside(h.Devices); err != nil {
		return nil, err
	}
	rules, err := netfilter.Translations(context.Background())
	if errors.Is(err, unix.EPERM) { // a user without this right can still write a policy
		err = nil
	}
	h.publish(exposed.PublishedBy(rules, facts.Names(h.Unfiltered)))
	return h, err
}

// query is longer than most queries of clients take: a client has then closed its socket.
const query = time.Second

// uplinks returns the devices of the default routes.
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

// staying removes the sockets that may belong to a client and are missing from the second list.
func (h *Host) staying(all, again []sockets.Socket) []sockets.Socket {
	return slices.DeleteFunc(all, func(s sockets.Socket) bool { return h.Clients.Maybe(s.Service) && !slices.ContainsFunc(again, s.Same) })
}

// take divides the sockets into services and other sockets. A socket on the loopback device serves no other host. A bound UDP socket that stays open
// is a service on any port, such as that of a VPN, which may belong to the kernel. But it belongs to a client if it has a client port and its program
// serves UDP on another port: resolvers, time servers and DHCP clients query other hosts in this way.
func (h *Host) take(all []sockets.Socket, programs sockets.Owners) {
	serves := map[string]bool{}
	for _, s := range all {
		if s.Proto == unix.IPPROTO_UDP && !h.Clients.Maybe(s.Service) {
			serves[programs.Of(s)] = true
		}
	}
	delete(serves, "") // sockets whose program is unknown
	for _, s := range all {
		if s.Addr.IsLoopback() {
			continue
		}
		service := Service{Service: s.Service, Program: exposed.PlainName(programs.Of(s))}
		list := h.listFor(service)
		switch {
		case exposed.OnLink(s.Service):
			list = &h.LeftOut
		case h.Clients.Maybe(s.Service) && serves[programs.Of(s)]:
			list = &h.Unsure
		}
		if !slices.ContainsFunc(*list, func(other Service) bool { return other.Service == s.Service }) {
			*list = append(*list, service)
		}
	}
}
