// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// IP protocol numbers (IANA) that the importer treats in a special way.
const (
	ProtoICMP   = 1
	ProtoTCP    = 6
	ProtoUDP    = 17
	ProtoICMPv6 = 58
)

// ProtoNumbers has the numbers of protocols by name. It has the names of /etc/protocols that the tools print, and
// others in common use.
var ProtoNumbers = map[string]uint32{
	"icmp": ProtoICMP, "igmp": 2, "ggp": 3, "ipencap": 4, "ipip": 4, "ipv4": 4, "st": 5, "tcp": ProtoTCP, "egp": 8,
	"igp": 9, "pup": 12, "udp": ProtoUDP, "hmp": 20, "xns-idp": 22, "rdp": 27, "iso-tp4": 29, "dccp": 33, "xtp": 36,
	"ddp": 37, "idpr-cmtp": 38, "ipv6": 41, "ipv6-route": 43, "ipv6-frag": 44, "idrp": 45, "rsvp": 46, "gre": 47,
	"esp": 50, "ipv6-crypt": 50, "ah": 51, "ipv6-auth": 51, "skip": 57, "icmpv6": ProtoICMPv6, "ipv6-icmp": ProtoICMPv6,
	"icmp6": ProtoICMPv6, "ipv6-nonxt": 59, "ipv6-opts": 60, "rspf": 73, "vmtp": 81, "eigrp": 88, "ospf": 89,
	"ospfigp": 89, "ax.25": 93, "etherip": 97, "encap": 98, "pim": 103, "ipcomp": 108, "comp": 108, "vrrp": 112,
	"l2tp": 115, "isis": 124, "sctp": 132, "fc": 133, "mobility-header": 135, "ipv6-mh": 135, "udplite": 136,
	"mpls-in-ip": 137, "hip": 139, "shim6": 140, "wesp": 141, "rohc": 142,
}

// Number reads a number up to limit, in decimal, or in hexadecimal with 0x.
func Number(text string, limit uint64) (uint32, bool) {
	n, err := strconv.ParseUint(text, 0, 32)
	return uint32(n), err == nil && n <= limit
}

// NumberSpan reads a number, or a range whose ends are separated by sep. If an end is missing, it is 0 or limit.
func NumberSpan(text, sep string, limit uint64) (Span, bool) {
	low, high, ranged := strings.Cut(text, sep)
	if !ranged {
		n, ok := Number(low, limit)
		return Span{First: n, Last: n}, ok
	}
	if low == "" {
		low = "0"
	}
	if high == "" {
		high = strconv.FormatUint(limit, 10)
	}
	first, ok1 := Number(low, limit)
	last, ok2 := Number(high, limit)
	return Span{First: first, Last: last}, ok1 && ok2 && first <= last
}

// ProtoNumber reads an IP protocol: its number, or its name in upper or lower case.
func ProtoNumber(text string) (uint32, bool) {
	if n, ok := ProtoNumbers[strings.ToLower(text)]; ok {
		return n, true
	}
	return Number(text, 255)
}

// Services has the port numbers by the names that the tools print when they print names.
var Services = map[string]uint32{
	"ftp-data": 20, "ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "bootps": 67, "bootpc": 68, "tftp": 69,
	"http": 80, "www": 80, "pop3": 110, "sunrpc": 111, "ntp": 123, "netbios-ns": 137, "netbios-dgm": 138,
	"netbios-ssn": 139, "imap2": 143, "imap": 143, "snmp": 161, "snmp-trap": 162, "bgp": 179, "ldap": 389, "https": 443,
	"microsoft-ds": 445, "submissions": 465, "isakmp": 500, "syslog": 514, "submission": 587, "ipp": 631, "ldaps": 636,
	"domain-s": 853, "imaps": 993, "pop3s": 995, "openvpn": 1194, "radius": 1812, "nfs": 2049, "mysql": 3306,
	"postgresql": 5432, "mdns": 5353, "http-alt": 8080,
	"dhcpv6-client": 546, "dhcpv6-server": 547,
}

// PortSpan reads a port or a range of ports.
func PortSpan(text, sep string) (Span, bool) {
	if n, ok := Services[text]; ok {
		return Span{First: n, Last: n}, true
	}
	return NumberSpan(text, sep, MaxPort)
}

// PortsIn returns the ports of the protocols, coded as packet.DPort. It returns false if one of the protocols is
// neither TCP nor UDP.
func PortsIn(ports Values, protos ...uint32) (Values, bool) {
	out := Values{}
	for _, p := range protos {
		switch p {
		case ProtoTCP:
			out = out.Or(ports)
		case ProtoUDP:
			out = out.Or(ports.Shifted(packet.PortUDP))
		default:
			return nil, false
		}
	}
	return out, true
}

// ICMPNames has the ICMP message types by the names of iptables and nft.
var ICMPNames = map[Family]map[string]uint32{
	IPv4: {
		"echo-reply": 0, "pong": 0, "destination-unreachable": 3, "source-quench": 4, "redirect": 5, "echo-request": 8,
		"ping": 8, "router-advertisement": 9, "router-solicitation": 10, "time-exceeded": 11, "ttl-exceeded": 11,
		"parameter-problem": 12, "timestamp-request": 13, "timestamp-reply": 14, "info-request": 15, "info-reply": 16,
		"address-mask-request": 17, "address-mask-reply": 18,
	},
	IPv6: {
		"destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3, "ttl-exceeded": 3, "parameter-problem": 4,
		"echo-request": 128, "ping": 128, "echo-reply": 129, "pong": 129, "mld-listener-query": 130,
		"mld-listener-report": 131, "mld-listener-done": 132, "mld-listener-reduction": 132, "nd-router-solicit": 133,
		"router-solicitation": 133, "nd-router-advert": 134, "router-advertisement": 134, "nd-neighbor-solicit": 135,
		"neighbour-solicitation": 135, "neighbor-solicitation": 135, "nd-neighbor-advert": 136,
		"neighbour-advertisement": 136, "neighbor-advertisement": 136, "nd-redirect": 137, "redirect": 137,
		"router-renumbering": 138, "ind-neighbor-solicit": 141, "ind-neighbor-advert": 142, "mld2-listener-report": 143,
	},
}

// ICMPCodes has the ICMP codes by the names of nft. nft accepts these names for every message type.
var ICMPCodes = map[Family]map[string]uint32{
	IPv4: {
		"net-unreachable": 0, "host-unreachable": 1, "prot-unreachable": 2, "port-unreachable": 3, "frag-needed": 4,
		"net-prohibited": 9, "host-prohibited": 10, "admin-prohibited": 13,
	},
	IPv6: {
		"no-route": 0, "admin-prohibited": 1, "addr-unreachable": 3, "port-unreachable": 4, "policy-fail": 5,
		"reject-route": 6,
	},
}

// ICMPBase returns the first value of a family's messages in the coding of packet.ICMP.
func ICMPBase(f Family) uint32 {
	if f == IPv6 {
		return packet.ICMPv6
	}
	return 0
}

// ICMPProto returns the protocol number of a family's ICMP messages.
func ICMPProto(f Family) uint32 {
	if f == IPv6 {
		return ProtoICMPv6
	}
	return ProtoICMP
}

// TCPFlag has the bits of the TCP flags, by name (RFC 9293, 3.1).
var TCPFlag = map[string]uint32{
	"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32, "ece": 64, "ecn": 64, "cwr": 128,
}

// FlagBits reads a comma-separated list of TCP flags.
func FlagBits(text string) (bits uint32, ok bool) {
	switch strings.ToLower(text) {
	case "none":
		return 0, true
	case "all": // iptables' word, which means six flags
		return 63, true
	}
	for name := range strings.SplitSeq(strings.ToLower(text), ",") {
		bit, known := TCPFlag[name]
		if !known {
			return 0, false
		}
		bits |= bit
	}
	return bits, true
}

// FlagsWhere returns the flags bytes for which holds is true.
func FlagsWhere(holds func(flags uint32) bool) Values {
	out := Values{}
	for f := range uint32(packet.FlagsNone) {
		if holds(f) {
			out = append(out, Span{First: f, Last: f})
		}
	}
	return Normalize(out)
}

// StateNames has the states of connection tracking, by name.
var StateNames = map[string]uint32{
	"new": packet.StateNew, "established": packet.StateEstablished, "related": packet.StateRelated,
	"invalid": packet.StateInvalid, "untracked": packet.StateUntracked,
}

// DSCPNumbers has the code points by name (RFC 2474, 2597, 3246, 5865, 8622).
var DSCPNumbers = map[string]uint32{
	"be": 0, "df": 0, "le": 1, "ef": 46, "va": 44, "cs0": 0, "cs1": 8, "cs2": 16, "cs3": 24, "cs4": 32, "cs5": 40,
	"cs6": 48, "cs7": 56, "af11": 10, "af12": 12, "af13": 14, "af21": 18, "af22": 20, "af23": 22, "af31": 26, "af32": 28,
	"af33": 30, "af41": 34, "af42": 36, "af43": 38,
}
