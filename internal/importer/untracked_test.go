// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/importer"
)

var untrackedLine = regexp.MustCompile(`(?m)^untracked: (.*)$`)

// TestUntracked has rules that exempt packets from connection tracking. The policy's `untracked` must contain the packets if it has the same effect
// on arriving packets. Otherwise the report must describe the difference.
func TestUntracked(t *testing.T) {
	const filter = "*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate UNTRACKED,ESTABLISHED -j ACCEPT\nCOMMIT\n"
	const forward = "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate UNTRACKED,ESTABLISHED -j ACCEPT\nCOMMIT\n"
	const answers = "no rule takes the answers out of connection tracking; the policy does"
	raw := func(rules ...string) string {
		return "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A " + strings.Join(rules, "\n-A ") + "\nCOMMIT\n" + filter
	}
	chain := func(rules ...string) string {
		list := append([]string{"PREROUTING -p ospf -j nt", "OUTPUT -p ospf -j nt"}, rules...)
		return strings.Replace(raw(list...), "*raw\n", "*raw\n:nt - [0:0]\n:more - [0:0]\n", 1)
	}
	prerouting := func(rules string) string {
		return "table inet raw {\n\tchain p {\n\t\ttype filter hook prerouting priority raw; policy accept;\n\t\t" + rules + "\n\t}\n" +
			"\tchain i {\n\t\ttype filter hook input priority filter; policy drop;\n\t\tct state untracked,established accept\n\t}\n}\n"
	}
	for _, tt := range []struct {
		name string
		text string
		want string // of untracked
		lost string // "" means that nothing is lost
		note string
	}{
		{"a protocol", raw("PREROUTING -p ospf -j NOTRACK", "OUTPUT -p ospf -j NOTRACK"), "[{proto: ospf, family: ipv4}]", "", ""},
		{"a protocol that comes in", raw("PREROUTING -p ospf -j CT --notrack"), "[{proto: ospf, family: ipv4}]", "", answers},
		{"a neighbor", raw("PREROUTING -s 198.51.100.7/32 -p tcp -m tcp --dport 179 -j CT --notrack",
			"OUTPUT -d 198.51.100.7/32 -p tcp -m tcp --sport 179 -j CT --notrack"), "[{from: 198.51.100.7, proto: tcp, port: 179}]", "", ""},
		{"both ports", raw("PREROUTING -p udp -m udp --sport 53 -j NOTRACK", "PREROUTING -p udp -m udp --dport 53 -j NOTRACK",
			"OUTPUT -p udp -m udp --dport 53 -j NOTRACK", "OUTPUT -p udp -m udp --sport 53 -j NOTRACK"), "[{proto: udp, sport: 53, family: ipv4}]", "", ""},
		{"multicast", raw("PREROUTING -d 224.0.0.0/4 -j NOTRACK"), "[{to: 224.0.0.0/4}]", "", answers},
		{"everything of IPv4", raw("PREROUTING -j CT --notrack", "OUTPUT -j CT --notrack"), "[{family: ipv4}]", "", ""},
		{"loopback", raw("PREROUTING -i lo -j NOTRACK", "OUTPUT -o lo -j NOTRACK"), "[loopback]", "", ""},
		{"a network", raw("PREROUTING -s 198.51.100.0/24 -j NOTRACK", "OUTPUT -d 198.51.100.0/24 -j NOTRACK"), "[{from: 198.51.100.0/24}]",
			"if one of them is this host's, connections to it are not tracked", ""},
		{"one way of a network", raw("PREROUTING -s 198.51.100.0/24 -j NOTRACK"), "", "`untracked` takes the other direction, too, which these rules track", ""},
		{"what the host asks", raw("PREROUTING -p udp -m udp --sport 53 -j NOTRACK"), "", "the other direction, too, which these rules track", ""},
		{"a length", raw("PREROUTING -m length --length 40 -j NOTRACK"), "", "it asks for what `untracked` has no key for", ""},
		{"a device", raw("PREROUTING -i fw0 -p gre -j NOTRACK"), "", "it is for one device, and `untracked` for all", ""},
		{"spared", raw("PREROUTING -s 198.51.100.7/32 -j ACCEPT", "PREROUTING -p ospf -j NOTRACK"), "", "rules before it spare some of its packets", ""},
		{"SYNPROXY", "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -s 198.51.100.7/32 -j NOTRACK\nCOMMIT\n*filter\n:INPUT DROP [0:0]\n" +
			"-A INPUT -p tcp -m tcp --dport 80 -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --wscale 7 --mss 1460\nCOMMIT\n", "",
			"SYNPROXY needs the connections of its services tracked", ""},
		{"a router, both ways", "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -s 198.51.100.0/24 -j NOTRACK\n-A PREROUTING -d 198.51.100.0/24 -j NOTRACK\nCOMMIT\n" + forward,
			"[{from: 198.51.100.0/24}]", "", ""},
		{"a router, one way", "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -s 198.51.100.7/32 -j NOTRACK\nCOMMIT\n" + forward,
			"", "the other direction, too, which these rules track", ""},
		{"a chain", chain("nt -j CT --notrack", "nt -j ACCEPT"), "[{proto: ospf, family: ipv4}]", "", ""},
		{"a chain behind a chain", chain("nt -s 198.51.100.7/32 -j more", "more -j NOTRACK"), "[{from: 198.51.100.7, proto: ospf}]", "", ""},
		{"a chain that spares some", chain("nt -s 198.51.100.7/32 -j RETURN", "nt -j CT --notrack"), "", "its packets come by way of another chain", ""},
		{"nft, a chain", strings.Replace(prerouting("ip protocol ospf jump n"), "\tchain p", "\tchain n {\n\t\tnotrack accept\n\t}\n\tchain p", 1),
			"[{proto: ospf, family: ipv4}]", "", ""},
		{"nft, everything", prerouting("notrack"), "all", "", answers},
		{"nft, a set", prerouting("ip saddr { 198.51.100.7, 198.51.100.9 } notrack"), "[{from: [198.51.100.7, 198.51.100.9]}]", "", answers},
		{"nft, of both families", prerouting("ip protocol ospf notrack\n\t\tip6 saddr 2001:db8::7 notrack"), "[{proto: ospf, family: ipv4}, {from: 2001:db8::7}]", "", answers},
		{"nft, too late", strings.Replace(prerouting("ip protocol ospf notrack"), "priority raw", "priority 0", 1), "", "", "its chain comes behind connection tracking"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			format := importer.Iptables
			if strings.HasPrefix(tt.text, "table") {
				format = importer.Nft
			}
			r := imported(t, format, importer.Source{Name: "f", Data: []byte(tt.text)})
			got := ""
			if m := untrackedLine.FindStringSubmatch(r.Policy); m != nil {
				got = m[1]
			}
			if got != tt.want {
				t.Errorf("untracked: %s, want %s\n%s", got, tt.want, r.Policy)
			}
			says(t, "lost", r.Lost, tt.lost)
			if tt.note != "" || tt.want != "" {
				says(t, "noted", about(r.Notes, "connection tracking"), tt.note)
			}
			if r.Unfit != "" {
				t.Errorf("check refuses it: %s\n%s", r.Unfit, r.Policy)
			}
		})
	}
}

// about returns the remarks that contain a text.
func about(list []importer.Remark, text string) (out []importer.Remark) {
	for _, r := range list {
		if strings.Contains(r.Why, text) {
			out = append(out, r)
		}
	}
	return out
}

// says checks that a list of remarks contains a text, or, if the text is empty, that the list is empty.
func says(t *testing.T, what string, list []importer.Remark, text string) {
	t.Helper()
	switch {
	case text == "" && len(list) > 0:
		t.Errorf("%s: %v, want nothing", what, list)
	case text != "" && len(about(list, text)) == 0:
		t.Errorf("%s: %v, want %q", what, list, text)
	}
}
