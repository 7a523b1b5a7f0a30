// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// CookiesOffError says that the kernel of this host does not accept connections that were opened with a SYN cookie.
type CookiesOffError struct{ Service string }

func (e *CookiesOffError) Error() string {
	return fmt.Sprintf("service %q: SYN cookies are switched off (net.ipv4.tcp_syncookies is 0): the kernel takes no connection that is opened with one", e.Service)
}

// Hint is the remedy.
func (e *CookiesOffError) Hint() string {
	return "sysctl -w net.ipv4.tcp_syncookies=1, or take syn out of the service"
}

// cookiesOn returns a *CookiesOffError if the kernel of this host neither sends nor accepts SYN cookies.
func cookiesOn(s *ir.Protection, host *facts.Facts) error {
	if host.TCP.Syncookies == 0 {
		return &CookiesOffError{s.Service}
	}
	return nil
}

// UnavailableError says that XDP on this host does not support a setting of a service. Another target may support it.
type UnavailableError struct{ error }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.error }

// method returns the method with which XDP answers for a protected service. 0 means that XDP only limits. `lost` describes the loss that results from
// this choice, with the cause; it is "" when nothing is lost. The error is an UnavailableError when the kernel lacks functions for router mode.
// Another target does not need these functions.
func method(s *ir.Protection, host *facts.Facts, mode datapath.Mode) (m ir.CookieMethod, lost string, err error) {
	if s.Router {
		if err := errors.Join(host.Kernel.RawCookies, host.Kernel.ConntrackLookup, untaggedReplies(host, mode)); err != nil {
			return 0, "", &UnavailableError{fmt.Errorf("service %q: XDP cannot stand before the kernel's SYNPROXY: %w", s.Service, err)}
		}
		return ir.MethodRouter, "", nil
	}
	if err := cookiesOn(s, host); err != nil {
		return 0, "", err
	}
	const limited = "service %q: SYNs are only limited, and ACKs not checked, before the kernel: its own cookies take care of the rest. Cause: %v"
	if bound := boundElsewhere(s, host); bound != nil {
		return 0, fmt.Sprintf(limited, s.Service, bound), nil
	}
	if cmp.Or(mode, datapath.Auto) == datapath.Auto && datapath.Instead() == datapath.TC {
		mode = datapath.TC // which a device gets whose replies in native mode would lack the tag: see ModeFor
	}
	if untagged := untaggedReplies(host, mode); untagged != nil {
		return 0, fmt.Sprintf(limited, s.Service, untagged), nil
	}
	lacks := host.Kernel.Reqsk
	if lacks == nil {
		lacks = multipath(s, host)
	}
	switch {
	case lacks == nil:
		return ir.MethodHost, "", nil
	case host.TCP.Syncookies == 2:
		return ir.MethodListener, fmt.Sprintf(
			"service %q: SYNs are answered with the kernel's own cookies%s: %v", s.Service, lostToListener(host.TCP), lacks), nil
	}
	return 0, fmt.Sprintf(limited+". With sysctl net.ipv4.tcp_syncookies=2 they are sent from XDP", s.Service, lacks), nil
}

// untaggedReplies returns an error if replies of XDP on one of the devices would lack the VLAN tag of the packets that they answer
// (facts.RepliesUntagged).
func untaggedReplies(host *facts.Facts, mode datapath.Mode) error {
	for _, d := range host.Devices {
		if mode != datapath.Generic && mode != datapath.TC && d.Untagged != nil {
			return d.Untagged
		}
	}
	return nil
}

// boundElsewhere returns an error if a socket of the service is bound to a device without XDP, such as a VLAN device on top of a device with XDP. XDP
// programs on the lower device do not find such a socket (sk_lookup in net/core/filter.c).
func boundElsewhere(s *ir.Protection, host *facts.Facts) error {
	var devices []string
	for _, d := range host.Devices {
		devices = append(devices, d.Name)
	}
	for _, l := range host.Listeners {
		if l.Device != "" && facts.Serves(s.Ports, l.Port) && !slices.Contains(devices, l.Device) {
			return fmt.Errorf("the socket on tcp/%d is bound to device %s, where the programs of %s do not find it; "+
				"bind it to an address instead and apply again", l.Port, l.Device, strings.Join(devices, ", "))
		}
	}
	return nil
}

// multipath returns an error if a socket of the service accepts MPTCP. The kernel does not let a program pass a connection that the program has
// checked to such a socket (bpf_sk_assign_tcp_reqsk in net/core/filter.c).
func multipath(s *ir.Protection, host *facts.Facts) error {
	for _, l := range host.Listeners {
		if l.MPTCP && facts.Serves(s.Ports, l.Port) {
			return fmt.Errorf("the socket on tcp/%d takes MPTCP, which leaves the kernel no way to be given a connection; "+
				"switch MPTCP off for it (GODEBUG=multipathtcp=0 for a server in Go, no `multipath` in nginx) and apply again", l.Port)
		}
	}
	return nil
}

// lostToListener returns a text on the TCP options that connections lose if the kernel's own cookies open them. The kernel encodes these options in
// the timestamp. The offset of the timestamp is secret unless tcp_timestamps is 2 (cookie_v4_check in net/ipv4/syncookies.c).
func lostToListener(t facts.TCP) string {
	if t.Timestamps == 2 {
		return ""
	}
	return ", without timestamps, window scaling and SACK (sysctl net.ipv4.tcp_timestamps=2 brings them back)"
}
