// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"slices"
	"testing"
)

// TestReadTranslations reads rules in the forms of nft and iptables-save. TestTranslated uses listings of the real tools. This test has the forms
// that do not occur there.
func TestReadTranslations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, listing, want string }{
		{"nft", "table ip nat {\n\tchain pre {\n\t\ttype nat hook prerouting priority -100; policy accept;\n" +
			"\t\tiifname != \"br0\" tcp dport { 80, 8000-8010 } counter packets 12 bytes 720 dnat to 10.0.0.2:8080\n" +
			"\t\tudp dport 53 redirect to :5353\n\t\tdnat ip to tcp dport map { 80 : 10.0.0.1 }\n\t\ttcp dport != 22 dnat to 10.0.0.3\n\t}\n" +
			"\tchain out {\n\t\ttype nat hook output priority 0; policy accept;\n\t\ttcp dport 81 dnat to 10.0.0.4\n\t}\n}\n",
			"[6 [{80 80} {8000 8010}] [10.0.0.2:8080] 8080 ip nat pre] [17 [{53 53}] [:5353] 5353 ip nat pre] [6 [] [] 0 ip nat pre] [6 [] [10.0.0.3] 0 ip nat pre]"},
		{"iptables", "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m multiport --dports 80,8000:8010 -j DNAT --to-destination 10.0.0.2:8080\n" +
			"-A PREROUTING -p udp -m udp --dport 53 -j REDIRECT --to-ports 5353\n-A PREROUTING -p tcp -m tcp ! --dport 22 -j DNAT --to-destination fd00::1\n" +
			"-A OUTPUT -p tcp -m tcp --dport 81 -j DNAT --to-destination 10.0.0.4\nCOMMIT\n",
			"[6 [{80 80} {8000 8010}] [10.0.0.2:8080] 8080 nat PREROUTING] [17 [{53 53}] [:5353] 5353 nat PREROUTING] [6 [] [fd00::1] 0 nat PREROUTING]"},
		{"kubernetes", "-A KUBE-NODEPORTS -p tcp -m comment --comment a/web -m tcp --dport 30080 -j KUBE-EXT-1\n-A KUBE-EXT-1 -j KUBE-SVC-1\n" +
			"-A KUBE-SVC-1 -m statistic --mode random --probability 0.5 -j KUBE-SEP-1\n-A KUBE-SVC-1 -j KUBE-SEP-2\n" +
			"-A KUBE-SEP-1 -p tcp -m tcp -j DNAT --to-destination 10.244.0.5:8080\n-A KUBE-SEP-2 -p tcp -m tcp -j DNAT --to-destination 10.244.1.7:8080\n",
			"[6 [] [10.244.0.5:8080] 8080 nat KUBE-SEP-1] [6 [] [10.244.1.7:8080] 8080 nat KUBE-SEP-2] " +
				"[6 [{30080 30080}] [10.244.0.5:8080 10.244.1.7:8080] 8080 nat KUBE-NODEPORTS]"},
		{"a loop", "-A A -p tcp --dport 80 -j B\n-A B -j A\n", ""},
	} {
		table, rules := "nat", ListedByIptables("ip", c.listing)
		if c.name == "nft" {
			table, rules = "ip nat", ListedByNft(c.listing)
		}
		got := ""
		for _, x := range readTranslations(table, rules) {
			if got != "" {
				got += " "
			}
			got += fmt.Sprint([]any{x.Proto, x.Ports, x.To, x.Port(), x.Table})
		}
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	devices := readTranslations("nat", ListedByIptables("ip", "-A PREROUTING -i lan0 -p udp --dport 53 -j REDIRECT\n-A PREROUTING ! -i br0 -d 192.0.2.1/32 -j DNAT --to-destination 10.0.0.5\n"))
	devices = append(devices, readTranslations("ip nat", ListedByNft("table ip nat {\n\tchain pre {\n\t\ttype nat hook prerouting priority -100; policy accept;\n"+
		"\t\tiifname \"lan0\" udp dport 53 redirect to :5300\n\t\tiifname != \"br0\" ip daddr 192.0.2.1 dnat to 10.0.0.5\n\t}\n}\n"))...)
	got := ""
	for _, x := range devices {
		got += fmt.Sprint([]any{x.In, x.For, x.Open}) + " "
	}
	if want := "[lan0 invalid Prefix false] [ 192.0.2.1/32 true] "; got != want+want {
		t.Errorf("devices, destinations and rules without ports: %s", got)
	}
	v6 := Translation{To: []string{"[fd09::2]:80"}}
	if v6.Port() != 80 || slices.Contains(v6.To, "") {
		t.Errorf("port of %v: %d, want 80", v6.To, v6.Port())
	}
}

// TestReadVirtualServices reads /proc/net/ip_vs of a balancer with services of both IP versions, one for all ports, one for a mark, and one of SCTP, which
// has no ports in a policy.
func TestReadVirtualServices(t *testing.T) {
	t.Parallel()
	got := ""
	for _, x := range readVirtualServices(`IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  C0000264:0050 wrr
  -> 0A090002:0050      Masq    1      0          0
  -> 0A090003:1F90      Masq    1      0          0
UDP  [2001:0db8:0000:0000:0000:0000:0000:0064]:0035 rr ops
  -> [fd09:0000:0000:0000:0000:0000:0000:0002]:0035      Route   1      0          0
TCP  C0000265:0000 wlc persistent 300
FWM  00000001 rr
SCTP C0000264:0B59 rr
`) {
		got += fmt.Sprint([]any{x.Proto, x.Ports, x.For, x.To, x.Open, x.Rule}) + "\n"
	}
	want := "[6 [{80 80}] 192.0.2.100/32 [10.9.0.2:80 10.9.0.3:8080] false TCP 192.0.2.100:80]\n[17 [{53 53}] 2001:db8::64/128 [[fd09::2]:53] false UDP [2001:db8::64]:53]\n" +
		"[6 [] 192.0.2.101/32 [] true TCP 192.0.2.101:0]\n[0 [] invalid Prefix [] true FWM 00000001]\n" +
		"[132 [] 192.0.2.100/32 [] true SCTP 192.0.2.100:2905]\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
