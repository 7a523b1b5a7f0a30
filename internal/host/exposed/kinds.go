// SPDX-License-Identifier: Apache-2.0

package exposed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/host/facts"
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

// PrivateAs returns the kind of a service that is not for the public. It returns "" for other services.
func PrivateAs(s sockets.Service) string {
	var kinds []string
	for kind, list := range private {
		if slices.Contains(list, s) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return strings.Join(kinds, " or ")
}

// linkPorts are UDP ports that need no service. They serve only hosts on the same link, or they belong to the host's DHCP client, for which there are
// essential rules.
var linkPorts = []uint16{68, 546, 1900, 5353, 5355}

// OnLink reports whether only hosts on the same link use a service.
func OnLink(s sockets.Service) bool {
	return s.Proto == unix.IPPROTO_UDP && slices.Contains(linkPorts, s.Port)
}

// Clients is the range of ports that the kernel chooses for connections of the host (net.ipv4.ip_local_port_range).
type Clients [2]int

// ClientPorts reads the range of this host.
func ClientPorts() Clients {
	r := facts.Sysctl("ipv4/ip_local_port_range", 32768, 60999)
	return Clients{r[0], r[1]}
}

// Maybe reports whether a socket may belong to a client: it is a UDP socket with a port of the range.
func (c Clients) Maybe(s sockets.Service) bool {
	return s.Proto == unix.IPPROTO_UDP && int(s.Port) >= c[0] && int(s.Port) <= c[1] && !s.Known()
}

// PlainName returns the name of a program for a line of text. It replaces characters that are not printable, because a program may have any name.
func PlainName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= ' ' && r <= '~' {
			return r
		}
		return '?'
	}, name)
}

// protocols are the names of protocols of raw sockets and tunnels.
var protocols = map[uint8]string{2: "IGMP", 4: "IPIP", 41: "IPv6 in IP", 47: "GRE", 50: "ESP", 51: "AH", 88: "EIGRP", 89: "OSPF", 103: "PIM", 112: "VRRP", 115: "L2TP", 132: "SCTP"}

// ProtocolName returns the name of a protocol, by IANA's number.
func ProtocolName(n uint8) string { return cmp.Or(protocols[n], fmt.Sprintf("protocol %d", n)) }
