// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

const (
	nameRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
	maxName   = 40
)

// safeName converts text to a name of the policy. It returns "" when no character is allowed.
func safeName(text string) string {
	safe := strings.Map(func(r rune) rune {
		if strings.ContainsRune(nameRunes, r) {
			return r
		}
		return '-'
	}, text)
	for strings.Contains(safe, "--") {
		safe = strings.ReplaceAll(safe, "--", "-")
	}
	safe = strings.TrimLeft(safe, "-.")
	return strings.TrimRight(safe[:min(len(safe), maxName)], "-.")
}

// names contains the names that are in use. It gives each rule or set a distinct name.
type names map[string]bool

// unique returns name. If the name is in use already, it appends a number.
func (n names) unique(name string) string {
	free := name
	for i := 2; n[strings.ToLower(free)]; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	n[strings.ToLower(free)] = true
	return free
}

// called returns a name for a rule without a comment. It has the chain if the file names it, the verdict unless that is pass, and a word for the
// packets.
func (f *flat) called() string {
	var words []string
	switch {
	case f.name != "":
		words = append(words, f.name)
	case f.chain != nil && f.chain.Hook == saved.HookNone:
		words = append(words, f.chain.Name)
	}
	if f.verdict != pass && words == nil {
		words = append(words, f.verdict.String())
	}
	if f.over != nil {
		words = append(words, "over")
	}
	if about := f.about(); about != "" {
		words = append(words, about)
	}
	if name := safeName(strings.Join(words, "-")); name != "" {
		return name
	}
	return "rest"
}

// about returns a word for the tests of a rule, or "".
func (f *flat) about() string {
	switch {
	case f.Field[packet.DPort] != nil && !f.Field[packet.DPort].Has(packet.PortNone):
		return portsName(f.Field[packet.DPort], "")
	case f.Field[packet.SPort] != nil && !f.Field[packet.SPort].Has(packet.PortNone):
		return portsName(f.Field[packet.SPort], "from-")
	case f.Field[packet.ICMP] != nil && !f.Field[packet.ICMP].Has(packet.ICMPNone):
		if list := policy.MessageWords(f.Field[packet.ICMP]); len(list) <= 2 {
			return strings.ReplaceAll(strings.Join(list, "-"), "/", "-")
		}
		return "icmp"
	}
	if f.AsksMSS() {
		return "mss"
	}
	if list := spanWords(f.Field[packet.Flags]); f.Field[packet.Flags] != nil && len(list) > 0 {
		return "tcp-flags"
	}
	for _, a := range []*saved.AddrSet{f.Src.In, f.Dst.In} {
		if a != nil && len(a.Sets) > 0 {
			return a.Sets[0].Name
		}
	}
	if v := f.Field[packet.Proto]; v != nil && v.Count() == 1 {
		name := policy.ProtocolName(uint8(v[0].First))
		if _, err := strconv.Atoi(name); err == nil {
			return "proto-" + name
		}
		return name
	}
	return f.aboutState()
}

func (f *flat) aboutState() string {
	switch v := f.Field[packet.State]; {
	case v != nil && v.Has(packet.StateEstablished) && !v.Has(packet.StateNew):
		return "established"
	case v != nil && v.Has(packet.StateInvalid) && !v.Has(packet.StateNew):
		return "invalid"
	case v != nil:
		return "state"
	}
	switch {
	case f.Src.In != nil && len(f.Src.In.Ranges) == 1 && !f.Src.In.Local:
		return "from-" + rangeText(f.Src.In.Ranges[0])
	case f.Dst.In != nil && len(f.Dst.In.Ranges) == 1 && !f.Dst.In.Local:
		return "to-" + rangeText(f.Dst.In.Ranges[0])
	case f.Src.In != nil || f.Dst.In != nil:
		return "addresses"
	}
	return ""
}

// portNames are the names of values.go by number, the first of each.
var portNames = map[uint32]string{
	20: "ftp-data", 21: "ftp", 22: "ssh", 23: "telnet", 25: "smtp", 53: "dns", 67: "dhcp", 68: "dhcp", 69: "tftp", 80: "http",
	110: "pop3", 111: "sunrpc", 123: "ntp", 143: "imap", 161: "snmp", 179: "bgp", 389: "ldap", 443: "https", 445: "smb",
	465: "submissions", 500: "ike", 514: "syslog", 587: "submission", 631: "ipp", 853: "dns-tls", 993: "imaps", 995: "pop3s",
	1194: "openvpn", 3306: "mysql", 3389: "rdp", 5432: "postgresql", 5353: "mdns", 6379: "redis", 546: "dhcpv6", 547: "dhcpv6",
}

// portsName returns a name for ports: the name of a single port, or two numbers with their protocol.
func portsName(v saved.Values, prefix string) string {
	var parts []string
	last := ""
	for _, s := range v {
		proto, first, end := "tcp", s.First, s.Last
		if first >= packet.PortUDP {
			proto, first, end = "udp", first-packet.PortUDP, end-packet.PortUDP
		}
		name := fmt.Sprint(first)
		if end != first {
			name = fmt.Sprintf("%d-%d", first, end)
		} else if known, ok := portNames[first]; ok {
			name = known
		} else if proto != last {
			name, last = proto+"-"+name, proto
		}
		if len(parts) == 0 || parts[len(parts)-1] != name {
			parts = append(parts, name)
		}
	}
	if len(parts) > 3 {
		parts = append(parts[:3], "more")
	}
	return prefix + strings.Join(parts, "-")
}
