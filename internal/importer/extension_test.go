// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/importer"
)

// extensionRule returns a ruleset in nft's JSON. Its chain has a single rule with these statements, and accepts all other packets.
func extensionRule(hook, statements string) importer.Source {
	return importer.Source{Name: "f", Data: fmt.Appendf(nil, `{"nftables": [
{"table": {"family": "ip", "name": "filter", "handle": 1}},
{"chain": {"family": "ip", "table": "filter", "name": "c", "handle": 1, "type": "filter", "hook": %q, "prio": 0, "policy": "accept"}},
{"rule": {"family": "ip", "table": "filter", "chain": "c", "handle": 2, "expr": [
 {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "198.51.100.7"}}, %s]}}]}`, hook, statements)}
}

// TestNftExtensions has matches and targets of iptables in nft's JSON. Each one must be imported or reported as lost, and each target that may drop
// must be counted as a drop.
func TestNftExtensions(t *testing.T) {
	for _, tt := range []struct {
		name, statements string
		policy           []string
		lost             string
		drops            importer.Drops
	}{
		{"REJECT", `{"xt": {"type": "target", "name": "REJECT"}}`, []string{"{from: 198.51.100.7, then: reject}"}, "", importer.Drops{Input: 1, Policy: 1}},
		{"a match before REJECT", `{"xt": {"type": "match", "name": "multiport"}}, {"xt": {"type": "target", "name": "REJECT"}}`, nil,
			"an extension of iptables (multiport), which only iptables-save prints: it drops some packets that the policy may pass", importer.Drops{Input: 1, Lost: 1}},
		{"one without a name", `{"xt": null}`, nil,
			"an extension of iptables (one that nft does not name), which only iptables-save prints, a target that nft does not name: the policy asks the next rules",
			importer.Drops{Input: 1, Lost: 1}},
		{"one without a name before a drop", `{"xt": null}, {"drop": null}`, nil,
			"an extension of iptables (one that nft does not name), which only iptables-save prints: it drops some packets that the policy may pass",
			importer.Drops{Input: 1, Lost: 1}},
		{"TARPIT", `{"xt": {"type": "target", "name": "TARPIT"}}`, nil, "TARPIT has no equal: the policy asks the next rules", importer.Drops{Input: 1, Lost: 1}},
		{"MARK", `{"xt": {"type": "target", "name": "MARK"}}`, nil, "marks packets, and the policy does not", importer.Drops{}},
		{"SYNPROXY", `{"xt": {"type": "target", "name": "SYNPROXY"}}`, nil, "the target SYNPROXY of iptables has no equal: the policy asks the next rules", importer.Drops{}},
		{"LOG", `{"xt": {"type": "match", "name": "limit"}}, {"xt": {"type": "target", "name": "LOG"}}`, nil, "", importer.Drops{}},
		{"recent", `{"xt": {"type": "match", "name": "recent"}}`, nil, "", importer.Drops{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := imported(t, importer.Nft, extensionRule("input", tt.statements))
			if diff := cmp.Diff(tt.policy, policyRules(r)); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			var lost []string
			for _, l := range r.Lost {
				lost = append(lost, l.Why)
			}
			if strings.Join(lost, "; ") != tt.lost || r.Drops != tt.drops {
				t.Errorf("lost %q, drops %+v; want %q, %+v", lost, r.Drops, tt.lost, tt.drops)
			}
		})
	}
}

// TestProxyBehind has SYNPROXY for a service behind this host. The rules for packets to the host itself must not change.
func TestProxyBehind(t *testing.T) {
	const filter = "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n-A INPUT -p tcp --dport 22 -j ACCEPT\n-A INPUT -p tcp --dport 443 -j ACCEPT\n-A INPUT -p udp --dport 53 -j ACCEPT\n-A INPUT -p udp --dport 123 -j ACCEPT\n" +
		"-A FORWARD -p tcp --dport 443 -m state --state INVALID,UNTRACKED -j SYNPROXY --wscale 7 --mss 1460\n-A FORWARD -p tcp --dport 443 -j ACCEPT\nCOMMIT\n"
	const nft = "table inet t {\n\tchain f {\n\t\ttype filter hook forward priority 0; policy drop;\n" +
		"\t\ttcp dport 443 ct state invalid,untracked synproxy mss 1460 wscale 7\n\t\ttcp dport 443 accept\n\t}\n}\n"
	for format, text := range map[importer.Format]string{importer.Iptables: filter, importer.Nft: nft} {
		r := imported(t, format, importer.Source{Name: "f", Data: []byte(text)})
		list := policyRules(r)
		service := "{port: tcp/443, syn: {when: always, wscale: 7, mss: 1460, mode: router}}"
		if !slices.Contains(list, service) || r.Unfit != "" || len(r.Lost) > 0 {
			t.Errorf("%s: no %s in\n%s\nlost %v, %s", format, service, r.Policy, r.Lost, r.Unfit)
		}
		if here := "{to: local, proto: tcp, port: 443, family: ipv4, then: pass}"; format == importer.Iptables && !slices.Contains(list, here) {
			t.Errorf("no %s in\n%s", here, r.Policy)
		}
	}
}

// TestNothingOpened has rules of a router that accept packets by a test for which a policy has no key. The policy must not accept these
// packets, unless the kernel's own rules see them later and can make the test.
func TestNothingOpened(t *testing.T) {
	for _, tt := range []struct {
		name, rule string
		opens      bool
	}{
		{"a suffix", "-d ::c0a8:1:5/::ffff:ffff:ffff:ffff -p tcp -m tcp --dport 443 -j ACCEPT", false},
		{"not a suffix", "! -d ::c0a8:1:5/::ffff:ffff:ffff:ffff -p tcp -m tcp --dport 443 -j ACCEPT", false},
		{"a time", "-p tcp -m tcp --dport 443 -m time --timestart 08:00 -j ACCEPT", false},
		{"a chain for a suffix", "-d ::c0a8:1:5/::ffff:ffff:ffff:ffff -p tcp -m tcp --dport 443 -j user", false},
		{"the device it leaves by", "-o lan0 -p tcp -m tcp --dport 443 -j ACCEPT", true},
		{"the device and a suffix", "-o lan0 -d ::c0a8:1:5/::ffff:ffff:ffff:ffff -p tcp -m tcp --dport 443 -j ACCEPT", false},
	} {
		text := "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:user - [0:0]\n-A FORWARD " + tt.rule + "\n-A user -j ACCEPT\nCOMMIT\n"
		r := imported(t, importer.IP6tables, importer.Source{Name: "f", Data: []byte(text)})
		if opens := strings.Contains(r.Policy, "then: pass"); opens != tt.opens || len(r.Lost) == 0 {
			t.Errorf("%s: opens %v, lost %v\n%s", tt.name, opens, r.Lost, r.Policy)
		}
	}
}

// TestRoutingHeader has rules that drop packets with a routing header of type 0. They must become a check of the policy.
func TestRoutingHeader(t *testing.T) {
	const check = "checks: {profile: off, source-route: on}"
	ip6 := func(rule string) importer.Source {
		return importer.Source{Name: "f", Data: []byte("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT " + rule + "\nCOMMIT\n")}
	}
	nft := func(rule string) importer.Source {
		return importer.Source{Name: "f", Data: []byte("table inet t {\n\tchain c {\n\t\ttype filter hook input priority 0;\n\t\t" + rule + "\n\t}\n}\n")}
	}
	for _, tt := range []struct {
		format importer.Format
		source importer.Source
		check  bool
	}{
		{importer.IP6tables, ip6("-m rt --rt-type 0 -j DROP"), true},
		{importer.IP6tables, ip6("-m rt --rt-type 2 -j DROP"), false},
		{importer.IP6tables, ip6("-m rt ! --rt-type 0 -j DROP"), false},
		{importer.IP6tables, ip6("-m rt --rt-type 0 --rt-segsleft 1 -j DROP"), false},
		{importer.IP6tables, ip6("-m rt --rt-type 0 -j ACCEPT"), false},
		{importer.Nft, nft("rt type 0 drop"), true},
		{importer.Nft, nft("rt type != 0 drop"), false},
	} {
		r := imported(t, tt.format, tt.source)
		if is := strings.Contains(r.Policy, check); is != tt.check || is == (len(r.Lost) > 0) || is && r.Drops.Policy != 1 {
			t.Errorf("%s: check %v, lost %v, %+v\n%s", tt.source.Data, is, r.Lost, r.Drops, r.Policy)
		}
	}
}

// TestLimitsOfLogs has limits in rules that only log, in a chain that packets reach twice, and in tables of the same name. These rules must not be
// reported as lost.
func TestLimitsOfLogs(t *testing.T) {
	r := imported(t, importer.Iptables, rules("ACCEPT", "INPUT -p tcp -j user", "INPUT -s 198.51.100.0/24 -j user",
		"user -m limit --limit 3/min -j LOG", "user -m hashlimit --hashlimit-upto 3/min --hashlimit-mode srcip --hashlimit-name x -j LOG",
		"user -m hashlimit --hashlimit-upto 3/min --hashlimit-mode srcip --hashlimit-name x -j NFLOG", "user -p tcp --dport 80 -j DROP"))
	if len(r.Lost) > 0 {
		t.Errorf("lost %v\n%s", r.Lost, r.Policy)
	}
	set := importer.Source{Name: "sets", Data: []byte("create x hash:net\nadd x 198.51.100.0/24\nadd x 198.51.100.64/28 nomatch\n")}
	r = imported(t, importer.Iptables, set, rules("ACCEPT", "INPUT -m set --match-set x src --return-nomatch -j DROP"))
	if r.Drops.Lost != 1 {
		t.Errorf("--return-nomatch: %+v\n%s", r.Drops, r.Policy)
	}
}
