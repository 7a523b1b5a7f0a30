package control

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

// CookiesOffError says that the kernel of this host takes no connection that a cookie has proved.
type CookiesOffError struct{ Service string }

func (e *CookiesOffError) Error() string {
	return fmt.Sprintf("service %q: SYN cookies are switched off (net.ipv4.tcp_syncookies is 0): the kernel takes no connection that is begun with one", e.Service)
}

// Hint is the remedy.
func (e *CookiesOffError) Hint() string {
	return "sysctl -w net.ipv4.tcp_syncookies=1, or take syn out of the service"
}

func syncookies() int { return sysctl("ipv4/tcp_syncookies", 1)[0] }

// cookiesOn returns a *CookiesOffError when the kernel would not defend a service of this host either.
func cookiesOn(s *ir.Protection) error {
	if syncookies() == 0 {
		return &CookiesOffError{s.Service}
	}
	return nil
}

// method chooses how a protected service is answered for in XDP, 0 where XDP only limits. lost tells what that costs, and
// why it is so; "" is nothing. Another target can do without what router mode needs of the kernel.
func (a *apply) method(s *ir.Protection, found []listener) (m ir.CookieMethod, lost string, err error) {
	if s.Router {
		if err := errors.Join(datapath.RawCookiesSupported(), datapath.ConntrackLookupSupported(), a.untaggedReplies()); err != nil {
			return 0, "", &unavailableError{fmt.Errorf("service %q: XDP cannot stand before the kernel's SYNPROXY: %w", s.Service, err)}
		}
		return ir.MethodRouter, "", nil
	}
	if err := cookiesOn(s); err != nil {
		return 0, "", err
	}
	const limited = "service %q: SYNs are only limited, and ACKs not checked, before the kernel: its own cookies take care of the rest. Cause: %v"
	if above := a.above(s, found); above != nil {
		return 0, fmt.Sprintf(limited, s.Service, above), nil
	}
	if untagged := a.untaggedReplies(); untagged != nil {
		return 0, fmt.Sprintf(limited, s.Service, untagged), nil
	}
	lacks := datapath.ReqskSupported()
	if lacks == nil {
		lacks = multipath(s, found)
	}
	switch {
	case lacks == nil:
		return ir.MethodHost, "", nil
	case syncookies() == 2:
		return ir.MethodListener, fmt.Sprintf(
			"service %q: SYNs are answered with the kernel's own cookies%s: %v", s.Service, lostToListener(), lacks), nil
	}
	return 0, fmt.Sprintf(limited+". With sysctl net.ipv4.tcp_syncookies=2 they are sent from XDP", s.Service, lacks), nil
}

// above returns an error when a socket of the service is bound to a device that XDP is not at, as one of a VLAN is above
// one that it is at: from there programs do not find the socket (sk_lookup in net/core/filter.c).
func (a *apply) above(s *ir.Protection, found []listener) error {
	for _, l := range found {
		if l.device == 0 || !serves(s.Ports, uint32(l.port)) {
			continue
		}
		link, err := netlink.LinkByIndex(l.device)
		if err != nil {
			return fmt.Errorf("the device of the socket on tcp/%d: %w", l.port, err)
		}
		if at := link.Attrs(); at.Flags&net.FlagLoopback == 0 && !slices.Contains(a.devices(), at.Name) {
			return fmt.Errorf("the socket on tcp/%d is bound to device %s, where the programs of %s do not find it; "+
				"bind it to an address instead and apply again", l.port, at.Name, strings.Join(a.devices(), ", "))
		}
	}
	return nil
}

// multipath returns an error when a socket of the service takes MPTCP: the kernel gives such a one no connection that a
// program has checked (bpf_sk_assign_tcp_reqsk in net/core/filter.c).
func multipath(s *ir.Protection, found []listener) error {
	for _, l := range found {
		if l.mptcp && serves(s.Ports, uint32(l.port)) {
			return fmt.Errorf("the socket on tcp/%d takes MPTCP, which leaves the kernel no way to be given a connection; "+
				"switch MPTCP off for it (GODEBUG=multipathtcp=0 for a server in Go, no `multipath` in nginx) and apply again", l.port)
		}
	}
	return nil
}

// serves reports whether a port of TCP is among the values of packet.DPort.
func serves(ports []ir.Range, port uint32) bool {
	return ir.Match{Field: packet.DPort, Values: ports}.Has(port)
}

// lostToListener is what connections lack that the kernel's own cookies begin: the offset of its timestamps is secret
// unless tcp_timestamps is 2 (cookie_v4_check in net/ipv4/syncookies.c).
func lostToListener() string {
	if sysctl("ipv4/tcp_timestamps", 1)[0] == 2 {
		return ""
	}
	return ", without timestamps, window scaling and SACK (sysctl net.ipv4.tcp_timestamps=2 brings them back)"
}
