// SPDX-License-Identifier: Apache-2.0

package nftable_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestRead loads tables with nft and reads them back. It checks rules, chains, sets and objects, and which of their parts are reported as unknown.
func TestRead(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	const script = `table inet t {
	counter hits { packets 7 bytes 99 }
	set nets { type ipv4_addr; flags interval; auto-merge; elements = { 10.0.0.0/8, 192.0.2.0-192.0.2.6, 255.255.255.255 } }
	set bans { type ipv6_addr; size 64; flags timeout; timeout 1h; elements = { 2001:db8::7 timeout 2h comment "why" } }
	set pairs { type ipv4_addr . inet_service; elements = { 192.0.2.1 . 53 } }
	map ways { type inet_service : verdict; elements = { 22 : jump two } }
	chain in { type filter hook input priority -5; policy drop
		iifname "fw0" ip saddr @nets counter name "hits" drop comment "listed"
		tcp dport vmap @ways
		socket transparent 1 accept
	}
	chain two { notrack; }
	chain nat { type nat hook prerouting priority dstnat; }
}
table netdev t { chain early { type filter hook ingress devices = { fw1, fw0 } priority 0; }; }`
	tables, err := nftable.Load(t.Context(), script, []string{"fw0", "fw1"}, nftable.Name{Family: unix.NFPROTO_INET, Name: "t"}, nftable.Name{Family: unix.NFPROTO_NETDEV, Name: "t"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, table := range tables {
		got = append(got, describe(t, table)...)
	}
	want := []string{
		"inet in: input filter -5 0 []", "  1 listed: Meta Cmp Meta Cmp Payload Lookup Objref Immediate", "  2 : Meta Cmp Payload Lookup", "  3 : unread socket",
		"inet nat: prerouting nat -100 1 []", "inet two:   0 0 []", "  1 : Notrack",
		"set bans: ipv6_addr, 64, 3600000, merges false: 20010db8000000000000000000000007 until 7200000 why",
		"set nets: ipv4_addr, 0, 0, merges true: 0a000000-0affffff, c0000200-c0000206, ffffffff-ffffffff",
		"set pairs: ipv4_addr . inet_service, 0, 0, merges false: c000020100350000",
		"set ways: inet_service, 0, 0, merges false: 0016 two", "object hits: 7 99", "netdev early: ingress filter 0 1 [fw0 fw1]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// describe returns the content of a table, one line for each object. It sorts objects that the kernel lists in no fixed order.
func describe(t *testing.T, table *nftable.Table) (lines []string) {
	slices.SortFunc(table.Chains, func(a, b *nftable.Chain) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range table.Chains {
		hook := c.Hook
		if hook == nil {
			hook = &nftable.Hook{}
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s %s %d %d %v", nftable.FamilyName(c.Family), c.Name, c.HookName(), c.Type, hook.Priority, hook.Policy, hook.Devices))
		for i, r := range c.Rules {
			var names []string
			for _, e := range r.Expressions {
				if u, is := e.(nftable.Unknown); is {
					names = append(names, "unread "+u.Name)
					break
				}
				names = append(names, strings.TrimPrefix(fmt.Sprintf("%T", e), "nftable."))
			}
			lines = append(lines, fmt.Sprintf("  %d %s: %s", i+1, r.Comment, strings.Join(names, " ")))
		}
	}
	var sets []string
	for _, s := range table.Sets {
		if strings.HasPrefix(s.Name, "__") {
			continue // an anonymous set, which belongs to a rule
		}
		intervals, err := s.Intervals()
		if err != nil {
			t.Error(err)
		}
		var keys []string
		for _, i := range intervals {
			key := fmt.Sprintf("%x", i.First)
			if s.Interval() {
				key += fmt.Sprintf("-%x", i.Last)
			}
			if i.Of.Expires {
				key += fmt.Sprintf(" until %d %s", i.Of.Timeout, i.Of.Comment)
			}
			if i.Of.Verdict != nil {
				key += " " + i.Of.Verdict.Chain
			}
			keys = append(keys, key)
		}
		sets = append(sets, fmt.Sprintf("set %s: %s, %d, %d, merges %v: %s", s.Name, s.Type(), s.Size, s.Timeout, s.Merges, strings.Join(keys, ", ")))
	}
	slices.Sort(sets)
	lines = append(lines, sets...)
	for _, o := range table.Objects {
		lines = append(lines, fmt.Sprintf("object %s: %d %d", o.Name, o.Packets, o.Bytes))
	}
	return lines
}
