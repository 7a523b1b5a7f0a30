// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/policy"
)

// Mode decides whether a protected service is on this host or behind it. The policy decides, or else the sockets that listen here. why says why; it
// is "" if the policy decides.
func (f *Facts) Mode(s *policy.Service) (mode policy.SynMode, why string) {
	if s.Syn.Mode != policy.SynModeAuto {
		return s.Syn.Mode, ""
	}
	for _, l := range f.Listeners {
		if Serves(ports(s), l.Port) {
			return policy.SynHost, fmt.Sprintf("one of this host, where a socket listens on tcp/%d", l.Port)
		}
	}
	if f.Forwards {
		return policy.SynRouter, "one behind this host, which forwards and where nothing listens on its ports; `mode: host` says otherwise"
	}
	return policy.SynHost, "one of this host, which does not forward, though nothing listens on its ports now"
}

// Listens reports whether a socket of this host listens on one of the ports.
func (f *Facts) Listens(ports []ranges.Range) bool {
	return slices.ContainsFunc(f.Listeners, func(l Listener) bool { return Serves(ports, l.Port) })
}

// Serves reports whether a port is in one of the ranges.
func Serves(ports []ranges.Range, port uint16) bool {
	return slices.ContainsFunc(ports, func(r ranges.Range) bool { return r.First <= uint32(port) && uint32(port) <= r.Last })
}

// ports returns the TCP ports of a service.
func ports(s *policy.Service) (list []ranges.Range) {
	for _, p := range s.Port {
		if p.Proto != unix.IPPROTO_UDP {
			list = append(list, ranges.Range{First: uint32(p.First), Last: uint32(p.Last)})
		}
	}
	return list
}

// Forwards reports whether this host forwards packets. The kernel forwards with any value but 0.
func Forwards() bool {
	return Sysctl("ipv4/ip_forward", 0)[0] != 0 || Sysctl("ipv6/conf/all/forwarding", 0)[0] != 0
}
