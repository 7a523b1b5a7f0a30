// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// knownPorts maps service names to the ports that the services use today. The names are those of IANA's registry (RFC 6335) and /etc/services, and a
// few common aliases. They are in the program, so that a policy has the same meaning on each host.
var knownPorts = func() map[string][]Port {
	known := map[string][]Port{}
	add := func(proto uint8, ports map[string]uint16) {
		for name, n := range ports {
			known[name] = append(known[name], Port{proto, n, n})
		}
	}
	add(protoTCP, map[string]uint16{
		"ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "dns": 53, "http": 80, "www": 80, "kerberos": 88, "pop3": 110, "sunrpc": 111,
		"ident": 113, "imap": 143, "bgp": 179, "ldap": 389, "https": 443, "microsoft-ds": 445, "submissions": 465, "printer": 515,
		"submission": 587, "ipp": 631, "ldp": 646, "ldaps": 636, "domain-s": 853, "rsync": 873, "imaps": 993, "pop3s": 995, "openvpn": 1194,
		"ms-sql-s": 1433, "mqtt": 1883, "nfs": 2049, "mysql": 3306, "rdp": 3389, "ms-wbt-server": 3389, "sip": 5060, "sips": 5061,
		"xmpp-client": 5222, "xmpp-server": 5269, "postgresql": 5432, "amqp": 5672, "redis": 6379, "syslog-tls": 6514, "http-alt": 8080,
		"secure-mqtt": 8883, "git": 9418, "memcache": 11211, "mongodb": 27017,
	})
	add(protoUDP, map[string]uint16{
		"domain": 53, "dns": 53, "bootps": 67, "bootpc": 68, "tftp": 69, "kerberos": 88, "sunrpc": 111, "ntp": 123, "snmp": 161, "snmptrap": 162,
		"quic": 443, "isakmp": 500, "syslog": 514, "dhcpv6-client": 546, "dhcpv6-server": 547, "ldp": 646, "domain-s": 853, "openvpn": 1194,
		"l2tp": 1701, "radius": 1812, "radius-acct": 1813, "nfs": 2049, "stun": 3478, "bfd-control": 3784, "ipsec-nat-t": 4500, "vxlan": 4789,
		"sip": 5060, "mdns": 5353, "wireguard": 51820,
	})
	return known
}()

// namedPorts parses name, the name of a service. proto is the number of the protocol in front of the name, 0 if there is none. It returns nil if name
// is a port number. The flaw quotes text, the complete word.
func namedPorts(text string, proto uint8, name string) ([]Port, *flaw) {
	if name == "" || name[0]|0x20 < 'a' || name[0]|0x20 > 'z' {
		return nil, nil
	}
	ports := knownPorts[strings.ToLower(name)]
	if ports == nil {
		f := want(portForm, text)
		if nearest := wording.Nearest(name, slices.Sorted(maps.Keys(knownPorts))); nearest != "" {
			return nil, f.hintf("did you mean %s?", nearest)
		}
		return nil, f.hintf("no service of that name is known: write the number, as in tcp/8443")
	}
	if proto == 0 {
		return ports, nil
	}
	of := slices.DeleteFunc(slices.Clone(ports), func(p Port) bool { return p.Proto != proto })
	if len(of) == 0 {
		return nil, want(portForm, text).hintf("%s has a port of %s alone: write %s", strings.ToLower(name), ProtocolName(ports[0].Proto), ports[0])
	}
	return of, nil
}
