// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/importer"
)

// TestOptions has options in all places and forms that iptables-restore accepts, and the rule of the policy for each.
func TestOptions(t *testing.T) {
	for _, tt := range []struct{ line, rule, lost string }{
		{"-p tcp -j DROP --dport 22", "{proto: tcp, port: 22, family: ipv4, then: drop}", ""},
		{"--jump DROP --protocol udp -m udp --destination-port 53", "{proto: udp, port: 53, family: ipv4, then: drop}", ""},
		{"-j REJECT --reject-with tcp-reset -p tcp -m tcp --dport 23", "{proto: tcp, port: 23, family: ipv4, then: reject}", ""},
		{"-j DROP -m limit --limit 5/s -p icmp",
			"{proto: icmp, family: ipv4, over: {rate: 5/s, burst: 5}, then: pass}\n{proto: icmp, family: ipv4, then: drop}", ""},
		{"-p tcp --dpo=auth -j DROP", "{proto: tcp, port: 113, family: ipv4, then: drop}", ""},
		{"-p tcp --dport 60000:29 -j DROP", "", ""},
		{"-p tcp --dport ! 22 -j DROP", "{proto: tcp, port: [0-21, 23-65535], family: ipv4, then: drop}", ""},
		{"-j DROP -p tcp --frob 1", "", "option --frob: it drops some packets that the policy may pass"},
		{"-j DROP -p tcp surplus", "", "the word surplus: it drops some packets that the policy may pass"},
		{"-j DROP -m mark ! --mark 4", "{family: ipv4, then: drop}", ""},
		{"-p udp -m hashlimit --hashlimit-above 512kb/s --hashlimit-mode srcip --hashlimit-name x -j DROP",
			"{proto: udp, family: ipv4, over: {rate: 4194304bit/s, per: from, burst: 4194304bit}, then: drop}", "it counts lengths in parts of 16 bytes"},
		{"-p tcp --syn -m tcpmss ! --mss 536:65535 -j DROP", "{proto: tcp, family: ipv4, flags: \"syn/fin,syn,rst,ack\", mss: [0-535, none], then: drop}", ""},
		{"-m tcp -p tcp --tcp-flags SYN SYN -m tcpmss --mss 1:535 -j DROP", "{proto: tcp, family: ipv4, flags: syn, mss: 1-535, then: drop}", ""},
		{"-p tcp -m tcpmss --mss 48 -j DROP", "{proto: tcp, family: ipv4, mss: 48, then: drop}", "the MSS option of any segment"},
		{"-p tcp --syn --dport 22 -m connlimit --connlimit-above 20 --connlimit-mask 24 --connlimit-saddr -j REJECT --reject-with tcp-reset",
			"{proto: tcp, port: 22, family: ipv4, flags: \"syn/fin,syn,rst,ack\", over: {connections: 20, per: from/24}, then: reject}", ""},
		{"-p tcp --syn --dport 80 -m connlimit ! --connlimit-upto 9 --connlimit-daddr -j DROP",
			"{proto: tcp, port: 80, family: ipv4, flags: \"syn/fin,syn,rst,ack\", over: {connections: 9, per: to}, then: drop}", ""},
		{"-p tcp --dport 80 -m connlimit --connlimit-above 9 -j DROP",
			"{proto: tcp, port: 80, family: ipv4, over: {connections: 9, per: from}, then: drop}", "every packet of a connection"},
		{"-p tcp --dport 80 -m connlimit --connlimit-above 9 --connlimit-mask 0 -j DROP", "", "-m connlimit"},
		{"-p udp -m conntrack --ctstate ESTABLISHED -m connlimit --connlimit-above 9 -j DROP", "", "-m connlimit"},
		{"-m conntrack --ctstate NEW --ctproto tcp --ctorigdstport 22 -j DROP", "{proto: tcp, port: 22, family: ipv4, state: new, then: drop}", ""},
	} {
		t.Run(tt.line, func(t *testing.T) {
			r := imported(t, importer.Iptables, rules("ACCEPT", "INPUT "+tt.line))
			got := strings.Join(policyRules(r), "\n")
			lost := fmt.Sprint(r.Lost)
			if diff := cmp.Diff(tt.rule, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (tt.lost == "") != (len(r.Lost) == 0) || !strings.Contains(lost, tt.lost) {
				t.Errorf("lost %v, want %q", r.Lost, tt.lost)
			}
		})
	}
}

// TestChainsWithoutLines has files without lines for the built-in chains, which iptables-restore accepts.
func TestChainsWithoutLines(t *testing.T) {
	const text = "*filter\n-A INPUT -p tcp -m tcp --dport 23 -j DROP\nCOMMIT\n"
	r := imported(t, importer.Iptables, importer.Source{Name: "f", Data: []byte(text)})
	if diff := cmp.Diff([]string{"{proto: tcp, port: 23, family: ipv4, then: drop}"}, policyRules(r)); diff != "" || r.Open != "" {
		t.Errorf("%q (-want +got):\n%s", r.Open, diff)
	}
}

// TestPassesEverything has files from which the policy would drop nothing. The head of the policy must say so, or the error must
// ask for another device.
func TestPassesEverything(t *testing.T) {
	const nowhere = "*filter\n:ufw-before-input - [0:0]\n-A ufw-before-input -p tcp -j DROP\nCOMMIT\n"
	r := imported(t, importer.Iptables, importer.Source{Name: "f", Data: []byte(nowhere)})
	if r.Open == "" || !strings.Contains(r.Policy, "IT PASSES EVERYTHING") {
		t.Errorf("%q\n%s", r.Open, r.Policy)
	}
	const trusted = "*filter\n:INPUT DROP [0:0]\n-A INPUT -i eth1 -j ACCEPT\n-A INPUT -p tcp --dport 22 -j ACCEPT\nCOMMIT\n"
	_, err := importer.Import(context.Background(), []importer.Source{{Name: "f", Data: []byte(trusted)}}, importer.Options{Format: importer.Iptables})
	var input *importer.InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), "pass all that comes in through eth1") || !strings.Contains(input.Hint(), "--device") {
		t.Error(err)
	}
}

// TestCountedAgain has packets that reach a limit once or twice. The limit in the file counts them each time.
func TestCountedAgain(t *testing.T) {
	for second, again := range map[string]bool{
		"INPUT -p udp --dport 54 -j LIM": false, "INPUT -p udp --dport 53 -s 10.0.0.0/8 -j LIM": true, "INPUT -p udp -j LIM": true, "INPUT -j OUT": true,
	} {
		text := "*filter\n:INPUT ACCEPT [0:0]\n:LIM - [0:0]\n:OUT - [0:0]\n-A INPUT -p udp --dport 53 -j LIM\n-A " + second +
			"\n-A OUT -j LIM\n-A LIM -m limit --limit 10/s --limit-burst 20 -j RETURN\n-A LIM -j DROP\nCOMMIT\n"
		r := imported(t, importer.Iptables, importer.Source{Name: "f", Data: []byte(text)})
		if got := strings.Contains(fmt.Sprint(r.Lost), "-m limit: some packets come to it more than once"); got != again {
			t.Errorf("-A %s: said %v, want %v: lost %v", second, got, again, r.Lost)
		}
	}
}

// TestManyWays has 60 chains, each of which jumps to the next one twice. There are 2^60 ways, but the import must be fast.
func TestManyWays(t *testing.T) {
	for name, jumps := range map[string][2]string{
		"all packets": {"", ""}, "some": {"-s 10.0.0.0/8 -m ttl --ttl-gt %d ", "-p tcp --dport %d: "},
		"others each time": {"-m length --length %d: ", "! -s 10.0.0.%d "},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j c0\n")
			for i := range 60 {
				for _, match := range jumps {
					if strings.Contains(match, "%") {
						match = fmt.Sprintf(match, i)
					}
					fmt.Fprintf(&b, "-A c%d %s-j c%d\n", i, match, i+1)
				}
			}
			b.WriteString("-A c60 -p udp -j DROP\n-A c60 -j DROP\nCOMMIT\n")
			start := cpuTime(t)
			r := imported(t, importer.Iptables, importer.Source{Name: "f", Data: []byte(b.String())})
			if took := cpuTime(t) - start; took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			if d := r.Drops; d.Input != 2 || d.Aside > 0 {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestRejectsOfARouter has rules that reject forwarded packets, after rules that pass packets to the host. The policy must compile,
// although the host's addresses are unknown where the reject rules would run. imported compiles it.
func TestRejectsOfARouter(t *testing.T) {
	const text = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n-A FORWARD -d 203.0.113.7 -j REJECT\n" +
		"-A FORWARD -d 203.0.113.9 -j REJECT\nCOMMIT\n"
	if r := imported(t, importer.Iptables, importer.Source{Name: "f", Data: []byte(text)}); r.Drops.Policy != 2 {
		t.Errorf("%+v\n%s", r.Drops, r.Policy)
	}
}

// TestPrompts has dumps that were copied from a terminal. Lines before and after the dump must be ignored and reported, and the
// lines of the dump must keep their numbers. Lines that look like rules in another form must still be an error.
func TestPrompts(t *testing.T) {
	const dump = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport 22 -j ACCEPT\nCOMMIT\n"
	for _, tt := range []struct {
		name, before, after string
		notes               int
		line                int // of the rule
		wrong               string
	}{
		{"a prompt", "root@host:~# iptables-save\n", "", 1, 4, ""},
		{"a prompt of another form, and one behind", "[root@host ~]# iptables-save\n# Generated by iptables-save v1.8\n", "[root@host ~]# \n", 2, 5, ""},
		{"a sentence", "Here is the dump\nof my host:\n\n", "", 2, 6, ""},
		{"a dollar", "$ sudo iptables-save\n", "", 1, 4, ""},
		{"commands", "iptables -P INPUT DROP\n", "", 0, 0, `"iptables -P INPUT DROP" is not what`},
		{"a rule", "-A INPUT -j DROP\n", "", 0, 0, `"-A INPUT -j DROP" is not what`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := importer.Import(context.Background(), []importer.Source{{Name: "f", Data: []byte(tt.before + dump + tt.after)}},
				importer.Options{Format: importer.Iptables, Devices: []string{"fw0"}})
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("%v; want %s", err, tt.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			notes := 0
			for _, n := range r.Notes {
				if n.Why == "is no part of the rules, and passed over" {
					notes += n.Count
				}
			}
			if notes != tt.notes || !strings.Contains(r.Policy, fmt.Sprintf("# f:%d\n", tt.line)) {
				t.Errorf("%d notes %v\n%s", notes, r.Notes, r.Policy)
			}
		})
	}
}

// TestNoForwardChain has an nft ruleset without a chain for forwarded packets. The notes must say how the policy treats such
// packets, and with --router it must pass them.
func TestNoForwardChain(t *testing.T) {
	const text = "table inet t {\n\tchain in {\n\t\ttype filter hook input priority 0; policy drop;\n\t\ttcp dport 22 accept\n\t}\n}\n"
	loadable(t, importer.Nft)
	for _, router := range []bool{false, true} {
		r, err := importer.Import(context.Background(), []importer.Source{{Name: "f", Data: []byte(text)}},
			importer.Options{Format: importer.Nft, Devices: []string{"fw0"}, Router: router})
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Contains(fmt.Sprint(r.Notes), "no chain is for forwarded packets")
		if passes := strings.Contains(r.Policy, "to: [local"); said == router || passes != router {
			t.Errorf("router %v: notes %v\n%s", router, r.Notes, r.Policy)
		}
	}
}

// TestMeters has nft limits for each address and limits in bytes, and the rules of the policy for them.
func TestMeters(t *testing.T) {
	for _, tt := range []struct{ line, rule, lost string }{
		{"tcp dport 22 meter m { ip saddr limit rate over 3/minute burst 4 packets } drop",
			"{proto: tcp, port: 22, family: ipv4, over: {rate: 3/min, per: from, burst: 4}, then: drop}", ""},
		{"udp dport 53 add @seen { ip saddr & 255.255.255.0 limit rate over 100/second } drop",
			"{proto: udp, port: 53, family: ipv4, over: {rate: 100/s, per: from/24, burst: 5}, then: drop}", ""},
		{"udp dport 53 update @pairs { ip saddr . ip daddr limit rate over 100/second burst 10 packets } drop",
			"{proto: udp, port: 53, family: ipv4, over: {rate: 100/s, per: [from, to], burst: 10}, then: drop}", ""},
		{"tcp dport 22 update @ports { ip saddr . tcp dport limit rate over 9/second burst 10 packets } drop",
			"{proto: tcp, port: 22, family: ipv4, over: {rate: 9/s, per: from, burst: 10}, then: drop}", ""},
		{"tcp dport 1-9 update @ports { ip saddr . tcp dport limit rate over 9/second burst 10 packets } drop", "", "a limit for each tcp dport"},
		{"meter six { ip6 saddr limit rate over 7/second } drop",
			"{family: ipv6, over: {rate: 7/s, per: from/32/128, burst: 5}, then: drop}", ""},
		{"udp dport 9 limit rate over 10 mbytes/second burst 1 mbytes drop",
			"{proto: udp, port: 9, over: {rate: 83886080bit/s, burst: 92274688bit}, then: drop}", ""},
		{"tcp dport 22 ct state new add @open { ip saddr ct count over 3 } drop",
			"{proto: tcp, port: 22, family: ipv4, state: new, over: {connections: 3, per: from}, then: drop}", ""},
		{"tcp dport 22 add @open { ip saddr ct count over 3 } drop",
			"{proto: tcp, port: 22, family: ipv4, over: {connections: 3, per: from}, then: drop}", "every packet of a connection"},
		{"tcp dport 22 ct state established add @open { ip saddr ct count over 3 } drop", "", "a limit for each address"},
		{"@ll,0,16 0x16 drop", "", "@ll,0,16"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			text := "table inet t {\n\tset seen { type ipv4_addr; size 99; flags dynamic; }\n\tset open { type ipv4_addr; size 99; flags dynamic; }\n" +
				"\tset pairs { type ipv4_addr . ipv4_addr; size 99; flags dynamic; }\n\tset ports { type ipv4_addr . inet_service; size 99; flags dynamic; }\n" +
				"\tchain in {\n\t\ttype filter hook input priority 0; policy accept;\n\t\t" + tt.line + "\n\t}\n}\n"
			r := imported(t, importer.Nft, importer.Source{Name: "f", Data: []byte(text)})
			if diff := cmp.Diff(tt.rule, strings.Join(policyRules(r), "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			lost := fmt.Sprint(r.Lost)
			if (tt.lost == "") != (len(r.Lost) == 0) || !strings.Contains(lost, tt.lost) || strings.Contains(lost, "nil") {
				t.Errorf("lost %v, want %q", r.Lost, tt.lost)
			}
		})
	}
}
