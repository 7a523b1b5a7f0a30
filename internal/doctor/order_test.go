// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestRulesOfOthers loads rules against floods with iptables and nft, in the form in which administrators write them. Faulty rules must lead to their
// finding, and to no other finding. The finding must be gone after its remedy. Correct rules must lead to no finding.
func TestRulesOfOthers(t *testing.T) {
	if !furnished(t, "nft", "iptables-nft", "iptables-nft-restore") {
		return
	}
	ids := []string{"notrack-one-way", "synproxy-notrack", "drops-late", "rules-order"}
	table := func(name string, lines ...string) string {
		return "iptables-nft-restore -c <<'END'\n*" + name + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\nEND\n"
	}
	table6 := func(name string, lines ...string) string {
		return "ip6tables" + strings.TrimPrefix(table(name, lines...), "iptables")
	}
	proxied := func(port string) string {
		return "-A INPUT -p tcp -m tcp --dport " + port + " -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --sack-perm --timestamp --wscale 7 --mss 1460"
	}
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("[0:0] -A INPUT -s 198.51.100.%d -j ACCEPT", i))
	}
	for _, tt := range []struct {
		name, setup string
		id          string // the ID of the finding; "" for none
		severity    Severity
		evidence    string
		remedy      bool // the remedy is a command, which the test runs
	}{
		{"nothing", "true", "", "", "", false},
		{"one way, iptables", table("raw", "-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack"), "notrack-one-way", Warning, `"-p udp -m udp --dport 53 -j CT --notrack" of table raw`, true},
		{"both ways, iptables", table("raw", "-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack", "-A OUTPUT -p udp -m udp --sport 53 -j CT --notrack"), "", "", "", false},
		{"both ways of a router", table("raw", "-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack", "-A PREROUTING -p udp -m udp --sport 53 -j CT --notrack"), "", "", "", false},
		{"one way, nft", "nft 'table inet x { chain pre { type filter hook prerouting priority raw; tcp dport 80 notrack; }; }'", "notrack-one-way", Warning, `"tcp dport 80 notrack" of table x`, true},
		{"both ways, nft", "nft 'table inet x { chain pre { type filter hook prerouting priority raw; tcp dport 80 notrack; }; chain out { type filter hook output priority raw; tcp sport 80 notrack; }; }'", "", "", "", false},
		{"loopback, in alone", "nft 'table inet x { chain pre { type filter hook prerouting priority raw; iif \"lo\" notrack; }; }'", "notrack-one-way", Warning, `"iif .+lo.+ notrack" of table x is for packets that come in on lo`, true},
		{"loopback, in alone, iptables", table("raw", "-A PREROUTING -i lo -p tcp -j CT --notrack"), "notrack-one-way", Warning, `"-i lo -p tcp -j CT --notrack"`, true},
		{"loopback, in and another device out", "nft 'table inet x { chain pre { type filter hook prerouting priority raw; iif \"lo\" notrack; }; chain out { type filter hook output priority raw; oifname \"eth9\" notrack; }; }'", "notrack-one-way", Warning, `come in on lo`, true},
		{"loopback, both", "nft 'table inet x { chain pre { type filter hook prerouting priority raw; iif \"lo\" notrack; }; chain out { type filter hook output priority raw; oif \"lo\" notrack; }; }'", "", "", "", false},
		{"loopback, all that leaves", table("raw", "-A PREROUTING -i lo -j CT --notrack", "-A OUTPUT -j CT --notrack"), "", "", "", false},
		{"loopback, out alone", table("raw", "-A OUTPUT -o lo -j CT --notrack"), "", "", "", false},
		{"synproxy alone, iptables", table("filter", "-A INPUT -p tcp -m tcp --dport 80 -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --sack-perm --timestamp --wscale 7 --mss 1460"),
			"synproxy-notrack", Warning, "SYNPROXY --sack-perm", true},
		{"synproxy alone, nft", "nft 'table ip x { chain in { type filter hook input priority 0; tcp dport 80 ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm; }; }'",
			"synproxy-notrack", Warning, "synproxy mss 1460", true},
		{"synproxy with notrack", table("raw", "-A PREROUTING -p tcp -m tcp --dport 80 --syn -j CT --notrack") +
			table("filter", "-A INPUT -p tcp -m tcp --dport 80 -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --sack-perm --timestamp --wscale 7 --mss 1460"), "", "", "", false},
		{"one way in a chain", table("raw", ":DNS - [0:0]", "-A PREROUTING -p udp -m udp --dport 53 -j DNS", "-A DNS -j CT --notrack"),
			"notrack-one-way", Warning, `"-j CT --notrack" of table raw \(reached by "-p udp -m udp --dport 53 -j DNS"\)`, true},
		{"both ways in chains", table("raw", ":IN - [0:0]", ":OUT - [0:0]", "-A PREROUTING -p udp -m udp --dport 53 -j IN", "-A IN -j CT --notrack",
			"-A OUTPUT -p udp -j OUT", "-A OUT -p udp -m udp --sport 53 -j CT --notrack"), "", "", "", false},
		{"one way beside a chain that nothing leads to", table("raw", ":NONE - [0:0]", "-A NONE -p udp -m udp --sport 53 -j CT --notrack", "-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack"),
			"notrack-one-way", Warning, `"-p udp -m udp --dport 53 -j CT --notrack" of table raw`, true},
		{"one way in a chain of nft", "nft 'table inet x { chain un { notrack; }; chain mid { udp dport { 53, 123 } goto un; }; chain pre { type filter hook prerouting priority raw; jump mid; }; }'",
			"notrack-one-way", Warning, `"notrack" of table x \(reached by "jump mid udp dport { 53, 123 } goto un"\)`, true},
		{"one way by a map of rules", "nft 'table inet x { chain un { notrack; }; chain pre { type filter hook prerouting priority raw; udp dport vmap { 53 : jump un }; }; chain out { type filter hook output priority raw; udp sport 53 notrack; }; }'",
			"", "", "", false},
		{"one of two ports back", table("raw", "-A PREROUTING -p udp -m multiport --dports 53,123 -j CT --notrack", "-A OUTPUT -p udp -m udp --sport 53 -j CT --notrack"),
			"notrack-one-way", Warning, `--dports 53,123`, true},
		{"two ports back by two rules", table("raw", "-A PREROUTING -p udp -m multiport --dports 53,123 -j CT --notrack", "-A OUTPUT -p udp -m udp --sport 53 -j CT --notrack",
			"-A OUTPUT -p udp -m udp --sport 123 -j CT --notrack"), "", "", "", false},
		{"another protocol back", table("raw", "-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack", "-A OUTPUT -p tcp -m tcp --sport 53 -j CT --notrack"),
			"notrack-one-way", Warning, `-p udp`, true},
		{"one way, IPv6", table6("raw", "-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack"), "notrack-one-way", Warning, `--dport 53`, true},
		{"one way, IPv6 beside both of IPv4", table("raw", "-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack", "-A OUTPUT -p udp -m udp --sport 53 -j CT --notrack") +
			table6("raw", "-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack"), "notrack-one-way", Warning, `--dport 53`, true},
		{"one way, nft of IPv6", "nft 'table ip6 x { chain pre { type filter hook prerouting priority raw; tcp dport 80-90 notrack; }; }'", "notrack-one-way", Warning, `80-90`, true},
		{"synproxy, notrack of another port", table("raw", "-A PREROUTING -p tcp -m tcp --dport 443 --syn -j CT --notrack") + table("filter", proxied("80")),
			"synproxy-notrack", Warning, "--dport 80 ", true},
		{"synproxy, notrack of answers", table("raw", "-A PREROUTING -p tcp -m tcp --sport 80 -j CT --notrack", "-A OUTPUT -p tcp -m tcp --dport 80 -j CT --notrack") + table("filter", proxied("80")),
			"synproxy-notrack", Warning, "--dport 80 ", true},
		{"synproxy, notrack of UDP", table("raw", "-A PREROUTING -p udp -m udp --dport 80 -j CT --notrack", "-A OUTPUT -p udp -m udp --sport 80 -j CT --notrack") + table("filter", proxied("80")),
			"synproxy-notrack", Warning, "--dport 80 ", true},
		{"synproxy of IPv6, notrack of IPv4", table("raw", "-A PREROUTING -p tcp -m tcp --dport 80 --syn -j CT --notrack") + table6("filter", proxied("80")),
			"synproxy-notrack", Warning, "--dport 80 ", true},
		{"synproxy and notrack in chains", table("raw", ":SYNS - [0:0]", "-A PREROUTING -p tcp -m tcp --syn -j SYNS", "-A SYNS -p tcp -m multiport --dports 80,443 -j CT --notrack") +
			table("filter", ":WEB - [0:0]", "-A INPUT -p tcp -m tcp --dport 443 -j WEB", "-A WEB -p tcp -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --wscale 7 --mss 1460"), "", "", "", false},
		{"synproxy of all that is untracked", table("raw", "-A PREROUTING -p tcp -m tcp --dport 80 --syn -j CT --notrack") +
			table("filter", "-A INPUT -p tcp -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --wscale 7 --mss 1460"), "", "", "", false},
		{"drops late, iptables", table("filter", "[20000:1200000] -A INPUT -s 203.0.113.9/32 -j DROP"), "drops-late", Note, "has dropped 20,000 packets", false},
		{"drops late, nft", "nft 'table inet x { chain in { type filter hook input priority 0; udp sport 123 counter packets 30000 bytes 9 drop; }; }'", "drops-late", Note, "has dropped 30,000 packets", false},
		{"drops by state", table("filter", "[20000:1200000] -A INPUT -m conntrack --ctstate INVALID -j DROP"), "", "", "", false},
		{"drops few", table("filter", "[20:1200] -A INPUT -s 203.0.113.9/32 -j DROP"), "", "", "", false},
		{"drops early", table("raw", "[20000:1200000] -A PREROUTING -s 203.0.113.9/32 -j DROP"), "", "", "", false},
		{"hits late", table("filter", append(many, "[50000:3000000] -A INPUT -p tcp -m tcp --dport 443 -j ACCEPT")...), "rules-order", Note, "goes through 61 of 61 rules first; most match rule 61: .*--dport 443", false},
		{"hits first", table("filter", append([]string{"[50000:3000000] -A INPUT -p tcp -m tcp --dport 443 -j ACCEPT"}, many...)...), "", "", "", false},
	} {
		sh(t, "nft flush ruleset; "+tt.setup)
		found := look(t)
		for _, id := range ids {
			f := find(t, found, id)
			switch {
			case id != tt.id && f.Severity != OK:
				t.Errorf("%s: %+v", tt.name, f)
			case id == tt.id && (f.Severity != tt.severity || !regexp.MustCompile(tt.evidence).MatchString(f.Evidence) || f.Cost == "" || f.Remedy == ""):
				t.Errorf("%s: want %s %s, got %+v", tt.name, tt.severity, tt.evidence, f)
			case id == tt.id && tt.remedy:
				sh(t, f.Remedy)
				if after := find(t, look(t), id); after.Severity != OK {
					t.Errorf("%s: after %q: %+v", tt.name, f.Remedy, after)
				}
			}
		}
	}
	sh(t, "nft flush ruleset")
}

// TestLooseBesideSynproxy tests nf_conntrack_tcp_loose together with SYNPROXY. If it is set, conntrack treats an ACK without a connection as part of
// a connection, so that the ACK never reaches SYNPROXY.
func TestLooseBesideSynproxy(t *testing.T) {
	if !furnished(t, "nft", "sysctl") {
		return
	}
	sh(t, "nft 'table ip x { chain pre { type filter hook prerouting priority raw; tcp dport 80 tcp flags syn notrack; }; chain in { type filter hook input priority 0; tcp dport 80 ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm; }; }'")
	sh(t, "sysctl -qw net.netfilter.nf_conntrack_tcp_loose=1")
	cured(t, expect(t, "conntrack-loose", Warning, "and SYNPROXY is in the rules"))
}
