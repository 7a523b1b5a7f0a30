package doctor

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestRulesOfOthers loads rules with the tools of others, as they are written against floods: one by one each finding appears, goes after its
// remedy, and none appears for rules that are right.
func TestRulesOfOthers(t *testing.T) {
	if !furnished(t, "nft", "iptables-nft", "iptables-nft-restore") {
		return
	}
	ids := []string{"notrack-one-way", "synproxy-notrack", "drops-late", "rules-order"}
	table := func(name string, lines ...string) string {
		return "iptables-nft-restore -c <<'END'\n*" + name + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\nEND\n"
	}
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("[0:0] -A INPUT -s 198.51.100.%d -j ACCEPT", i))
	}
	for _, tt := range []struct {
		name, setup string
		id          string // of the finding, "" for none
		severity    Severity
		evidence    string
		remedy      bool // is a command that mends it
	}{
		{"nothing", "true", "", "", "", false},
		{"one way, iptables", table("raw", "-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack"), "notrack-one-way", Warning, `"-p udp -m udp --dport 53 -j CT --notrack" of table raw`, true},
		{"both ways, iptables", table("raw", "-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack", "-A OUTPUT -p udp -m udp --sport 53 -j CT --notrack"), "", "", "", false},
		{"both ways of a router", table("raw", "-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack", "-A PREROUTING -p udp -m udp --sport 53 -j CT --notrack"), "", "", "", false},
		{"one way, nft", "nft 'table inet x { chain pre { type filter hook prerouting priority raw; tcp dport 80 notrack; }; }'", "notrack-one-way", Warning, `"tcp dport 80 notrack" of table x`, true},
		{"both ways, nft", "nft 'table inet x { chain pre { type filter hook prerouting priority raw; tcp dport 80 notrack; }; chain out { type filter hook output priority raw; tcp sport 80 notrack; }; }'", "", "", "", false},
		{"loopback", "nft 'table inet x { chain pre { type filter hook prerouting priority raw; iif \"lo\" notrack; }; }'", "", "", "", false},
		{"synproxy alone, iptables", table("filter", "-A INPUT -p tcp -m tcp --dport 80 -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --sack-perm --timestamp --wscale 7 --mss 1460"),
			"synproxy-notrack", Warning, "SYNPROXY --sack-perm", true},
		{"synproxy alone, nft", "nft 'table ip x { chain in { type filter hook input priority 0; tcp dport 80 ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm; }; }'",
			"synproxy-notrack", Warning, "synproxy mss 1460", true},
		{"synproxy with notrack", table("raw", "-A PREROUTING -p tcp -m tcp --dport 80 --syn -j CT --notrack") +
			table("filter", "-A INPUT -p tcp -m tcp --dport 80 -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --sack-perm --timestamp --wscale 7 --mss 1460"), "", "", "", false},
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

// TestLooseBesideSynproxy: conntrack takes an ACK of no connection for one, so SYNPROXY never sees it.
func TestLooseBesideSynproxy(t *testing.T) {
	if !furnished(t, "nft", "sysctl") {
		return
	}
	sh(t, "nft 'table ip x { chain pre { type filter hook prerouting priority raw; tcp dport 80 tcp flags syn notrack; }; chain in { type filter hook input priority 0; tcp dport 80 ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm; }; }'")
	sh(t, "sysctl -qw net.netfilter.nf_conntrack_tcp_loose=1")
	cured(t, expect(t, "conntrack-loose", Warning, "and SYNPROXY is in the rules"))
}
