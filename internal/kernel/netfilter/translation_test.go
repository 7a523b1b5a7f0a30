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
	v6 := Translation{To: []string{"[fd09::2]:80"}}
	if v6.Port() != 80 || slices.Contains(v6.To, "") {
		t.Errorf("port of %v: %d, want 80", v6.To, v6.Port())
	}
}
