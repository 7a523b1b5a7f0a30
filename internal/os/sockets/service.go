package sockets

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Service is a port of a protocol.
type Service struct {
	Proto uint8 // unix.IPPROTO_TCP or UDP
	Port  uint16
}

// String writes the port as policies do: tcp/80.
func (s Service) String() string { return fmt.Sprintf("%s/%d", s.protocol(), s.Port) }

func (s Service) protocol() string {
	if s.Proto == unix.IPPROTO_TCP {
		return "tcp"
	}
	return "udp"
}

// wellKnown are services that have a name among people.
var wellKnown = map[uint16]string{
	22: "ssh", 25: "mail", 53: "dns", 80: "web", 123: "ntp", 143: "imap", 443: "https", 465: "submissions", 500: "ipsec", 587: "submission",
	993: "imaps", 995: "pop3s", 1194: "openvpn", 3306: "mysql", 4500: "ipsec-nat", 5432: "postgresql", 6379: "redis", 51820: "wireguard",
}

// Known reports whether the port is known for a service.
func (s Service) Known() bool { return wellKnown[s.Port] != "" }

// Name is a name of the service for a policy: dns-udp, or tcp-8080 when the port has none.
func (s Service) Name() string {
	if known := wellKnown[s.Port]; known != "" {
		return known + "-" + s.protocol()
	}
	return fmt.Sprintf("%s-%d", s.protocol(), s.Port)
}
