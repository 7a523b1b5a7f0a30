// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"strings"
	"testing"
	"time"
)

// TestVerify changes the loaded rules like another program, each time in one place.
func TestVerify(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		ctx := t.Context()
		verify := func() error { return nil }
		rows := []struct{ command, input, says string }{}
		switch g := b.generations.(type) {
		case nftGenerations:
			verify = func() error { return g.Verify(ctx, g.table(1)) }
			row := func(says, input string) {
				rows = append(rows, struct{ command, input, says string }{"nft -f -", input, says})
			}
			row("chain more has 2 rules, not 1", "add rule inet floodwall-1 more accept\n")
			row("chain raw has 0 rules, not 3", "flush chain inet floodwall-1 raw\n")
			row(`chain forward is "hook forward priority 0 devices [] policy accept", not "hook forward priority 0 devices [] policy drop"`,
				"table inet floodwall-1 { chain forward { policy accept; }\n}\n")
			row("set listed has 2 elements, not 3", "delete element inet floodwall-1 listed { 203.0.114.7 }\n")
			row("no set bans6", "flush chain inet floodwall-1 raw\ndelete set inet floodwall-1 bans6\n")
			row("no counter dropped", "flush chain inet floodwall-1 ingress\nflush chain inet floodwall-1 more\ndelete counter inet floodwall-1 dropped\n")
			row("no chain forward", "delete chain inet floodwall-1 forward\n")
			row("no chain ingress\nno chain input\nno chain more", "delete table inet floodwall-1\n")
			row("devices [fw0 fw1] policy accept\", not \"hook ingress priority -500 devices [fw0]",
				"table inet floodwall-1 { chain ingress { type filter hook ingress device fw1 priority -500; }\n}\n")
		case iptablesGenerations:
			verify = func() error { return g.Verify(ctx, g.rules(1)) }
			row := func(says, command, input string) {
				rows = append(rows, struct{ command, input, says string }{command, input, says})
			}
			row("chain FLOODWALL-1-more of table filter for IPv4 has 0 rules, not 1", "iptables-restore --noflush",
				"*filter\n-F FLOODWALL-1-more\nCOMMIT\n")
			row("chain FLOODWALL-1-raw of table raw for IPv6 has 3 rules, not 2", "ip6tables-restore --noflush",
				"*raw\n-A FLOODWALL-1-raw -j RETURN\nCOMMIT\n")
			row("set floodwall-1-listed has 1 entries, not 2", "ipset del floodwall-1-listed 203.0.113.7", "")
		}
		for _, row := range rows {
			b.must(b.load(ctx, 1, 0, 0))
			b.must(verify())
			pipe(t, row.command, row.input)
			if err := verify(); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%s: %v", row.says, err)
			}
			b.must(b.Remove(ctx, b.name(1)))
		}
	})
}

// TestPriority tests all ways to write the priority of a chain.
func TestPriority(t *testing.T) {
	for text, want := range map[string]int{
		"-450": -450, "0": 0, "7": 7, "raw": -300, "raw+3": -297, "filter-5": -5, "srcnat+1": 101, "mangle": -150,
	} {
		if got, err := readPriority(text); got != want || err != nil {
			t.Errorf("priority %s: %d, %v, want %d", text, got, err, want)
		}
	}
	if _, err := readPriority("filter+x"); err == nil {
		t.Error("priority filter+x is accepted")
	}
}

// TestDuration tests durations in the form that nft reads.
func TestDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0d3599s832ms": 59*time.Minute + 59*time.Second + 832*time.Millisecond, "0d4s0ms": 4 * time.Second, "0d0s100ms": 100 * time.Millisecond,
		"1d0s0ms": day, "18250d0s0ms": 18250 * day, "2d11045s6ms": 2*day + 3*time.Hour + 4*time.Minute + 5*time.Second + 6*time.Millisecond,
	} {
		if got := writeDuration(d); got != want {
			t.Errorf("%v is written as %s, want %s", d, got, want)
		}
	}
}
