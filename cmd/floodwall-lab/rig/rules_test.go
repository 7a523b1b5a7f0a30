// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRuleInEachLanguage(t *testing.T) {
	want := []string{
		"from: 10.0.0.16/28, proto: tcp, port: 1000, then: pass",
		"ip saddr 10.0.0.16/28 tcp dport 1000 accept",
		"-s 10.0.0.16/28 -p tcp --dport 1000 -j ACCEPT",
		"from: 10.0.1.7, proto: udp, port: 1001-1004, then: drop",
		"ip saddr 10.0.1.7 udp dport 1001-1004 drop",
		"-s 10.0.1.7 -p udp --dport 1001:1004 -j DROP",
		"from: 172.16.2.0/24, to: 10.0.0.5, proto: tcp, port: 1002, then: drop",
		"ip saddr 172.16.2.0/24 ip daddr 10.0.0.5 tcp dport 1002 drop",
		"-s 172.16.2.0/24 -d 10.0.0.5 -p tcp --dport 1002 -j DROP",
		"proto: tcp, port: 1003, sport: 20003, then: pass",
		"tcp sport 20003 tcp dport 1003 accept",
		"-p tcp --sport 20003 --dport 1003 -j ACCEPT",
	}
	var got []string
	for n := range 4 {
		r := nthRule(n)
		got = append(got, r.policy(), r.nft(), r.iptables())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIptablesScript(t *testing.T) {
	want := "*raw\n-A PREROUTING " + nthRule(0).iptables() + "\n-A PREROUTING -j DROP\nCOMMIT\n"
	if got := IptablesScript("raw", "PREROUTING", 1); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if n := strings.Count(NftRules(20), "\n"); n != 20 {
		t.Errorf("%d rules of nft, want 20", n)
	}
}
