// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lostPolicy has a small set, so that new bans displace others.
const lostPolicy = `devices: [fw0]
default: pass
checks: off
never: [198.51.100.64/28]
sets: {bans: {dynamic: true, max: 12, timeout: 1h}}
rules: [{name: banned, from: $bans, then: drop}]
`

// TestLostBans makes bans of programs and of a person disappear from the set before their end, on each target. New bans displace them, or another
// program empties the set. All bans must be restored when there is space, no matter who made them. Unblocked addresses must stay unblocked.
func TestLostBans(t *testing.T) {
	if !inside(t) {
		return
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(lostPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	h := startDaemon(t)
	s := serve(t)
	s.also = func() string { return h.said.String() + mustFloodwall(t, "blocked") }
	const mine, lifted = "198.51.100.1", "198.51.100.2"
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		mustFloodwall(t, "apply", policy, "--target", target)
		all, want := []string{mine, lifted}, []string{mine}
		mustFloodwall(t, "block", mine)
		for i, origin := range []string{"fail2ban", "crowdsec", "suricata", "fail2ban", "crowdsec"} {
			a := fmt.Sprintf("198.51.100.%d", 10+i)
			mustFloodwall(t, "block", a, "--origin", origin, "--why", "scan", "--for", fmt.Sprintf("%dm", 10+i))
			all, want = append(all, a), append(want, a)
		}
		mustFloodwall(t, "block", lifted, "--origin", "crowdsec", "--for", "2h")

		// Bans by a person displace the two bans by programs that end first.
		var hand []string
		for i := range 7 {
			hand = append(hand, fmt.Sprintf("203.0.113.%d", 21+i))
		}
		mustFloodwall(t, append([]string{"block"}, hand...)...)
		if out := mustFloodwall(t, "blocked"); strings.Contains(out, "198.51.100.10 ") || strings.Contains(out, "198.51.100.11 ") {
			t.Errorf("%s: nothing gave way:\n%s", target, out)
		}
		mustFloodwall(t, "unblock", lifted)
		mustFloodwall(t, append([]string{"unblock"}, hand...)...)
		s.banned(target+": when there is space again", all, want...)
		if out := mustFloodwall(t, "blocked"); !matches(`198.51.100.10 +bans +(10m|9m)\S* +fail2ban +scan`, out) {
			t.Errorf("%s: a ban that came back:\n%s", target, out)
		}

		switch target {
		case "nftables":
			sh(t, `nft list sets | awk '$1 == "table" {t = $2" "$3} $1 == "set" && $2 ~ /bans/ {print "flush set", t, $2}' | nft -f -
				! nft list ruleset | grep -q 198.51.100.12`)
			s.banned("nftables: after the set was emptied", all, want...)
		case "iptables":
			sh(t, "ipset flush")
			s.banned("iptables: after the sets were emptied", all, want...)
		}
		mustFloodwall(t, "unload")
	}
	if !strings.Contains(h.said.String(), "bans are entered again that sets had lost before their end") {
		t.Errorf("the daemon says:\n%s", h.said)
	}
}
