// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/importer"
)

// proxyRules are the rules of a talk of 2021 about SYNPROXY, together with a host's own rules.
const proxyRules = `*raw
:PREROUTING ACCEPT [0:0]
-A PREROUTING -p tcp -m tcp --dport 443 --syn -j CT --notrack
COMMIT
*filter
:INPUT DROP [0:0]
-A INPUT -s 203.0.113.0/24 -j DROP
-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p tcp -m tcp --dport 443 -m state --state INVALID,UNTRACKED -j SYNPROXY --sack-perm --timestamp --wscale 7 --mss 1460
-A INPUT -m state --state INVALID -j DROP
-A INPUT -p tcp -m multiport --dports 22,443 -j ACCEPT
COMMIT
`

// proxyNft are the same rules for nft.
const proxyNft = `table inet filter {
	chain pre {
		type filter hook prerouting priority raw; policy accept;
		tcp dport 443 tcp flags syn notrack
	}
	chain input {
		type filter hook input priority filter; policy drop;
		ip saddr 203.0.113.0/24 drop
		ct state related,established accept
		tcp dport 443 ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm
		ct state invalid drop
		tcp dport { 22, 443 } accept
	}
}
`

// TestSYNPROXY has rules for SYNPROXY with their NOTRACK rules. They must become a service, and rules that test a state must
// exclude its packets.
func TestSYNPROXY(t *testing.T) {
	for name, tt := range map[string]struct {
		format importer.Format
		text   string
		family string
		syn    string
	}{
		"iptables": {importer.Iptables, proxyRules, "family: ipv4, ", "syn: {when: always, wscale: 7, mss: 1460}"},
		"nft":      {importer.Nft, proxyNft, "", "syn: {when: always, wscale: 7, mss: 1460}"},
	} {
		t.Run(name, func(t *testing.T) {
			r := imported(t, tt.format, importer.Source{Name: "f", Data: []byte(tt.text)})
			ssh := "{proto: tcp, port: 22, " + tt.family + "then: pass}"
			want := []string{
				"{from: 203.0.113.0/24, then: drop}",
				"{" + tt.family + "state: [established, related], not: {port: tcp/443}, then: pass}",
				"{" + tt.family + "state: invalid, not: {port: tcp/443}, then: drop}",
				ssh,
			}
			want = append(want, "{"+tt.family+"not: {port: tcp/443}, then: drop}", "{port: tcp/443, "+tt.syn+"}")
			got := slices.DeleteFunc(policyRules(r), func(line string) bool { return line[0] != '{' })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rules (-want +got):\n%s\n%s", diff, r.Policy)
			}
			if len(r.Lost) > 0 || r.Unfit != "" {
				t.Errorf("lost %v, %s\n%s", r.Lost, r.Unfit, r.Policy)
			}
		})
	}
}
