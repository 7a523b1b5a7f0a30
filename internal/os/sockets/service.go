// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Service is a port of TCP or UDP.
type Service struct {
	Proto uint8 // unix.IPPROTO_TCP or UDP
	Port  uint16
}

// String returns the port in the policy's notation: tcp/80.
func (s Service) String() string { return fmt.Sprintf("%s/%d", s.protocol(), s.Port) }

func (s Service) protocol() string {
	if s.Proto == unix.IPPROTO_TCP {
		return "tcp"
	}
	return "udp"
}

// wellKnown are the common names of services, by port.
var wellKnown = map[uint16]string{
	22: "ssh", 25: "mail", 53: "dns", 80: "web", 123: "ntp", 143: "imap", 443: "https", 465: "submissions", 500: "ipsec", 587: "submission",
	993: "imaps", 995: "pop3s", 1194: "openvpn", 3306: "mysql", 4500: "ipsec-nat", 5432: "postgresql", 6379: "redis", 51820: "wireguard",
}

// Known reports whether the port has a name in wellKnown.
func (s Service) Known() bool { return wellKnown[s.Port] != "" }

// Name returns the name that the service gets in a policy: dns-udp, or tcp-8080 if the port has no common name.
func (s Service) Name() string {
	if known := wellKnown[s.Port]; known != "" {
		return known + "-" + s.protocol()
	}
	return fmt.Sprintf("%s-%d", s.protocol(), s.Port)
}
