// SPDX-License-Identifier: Apache-2.0

package exposed_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/policy"
)

// TestPublishedBy lists what rules of NAT send on. A short range is one entry for each port. Rules for inner devices, and for addresses that no other
// host knows, send on nothing from outside.
func TestPublishedBy(t *testing.T) {
	t.Parallel()
	ports := func(first, last uint32) []ranges.Range { return []ranges.Range{{First: first, Last: last}} }
	rules := []netfilter.Translation{
		{Proto: 6, Ports: ports(80, 81), To: []string{"10.0.0.2"}},
		{Proto: 6, Ports: ports(80, 80), To: []string{"[fd00::2]:80"}}, // the rule for IPv6
		{Proto: 17, Ports: ports(10000, 20000), To: []string{"10.0.0.3"}},
		{Ports: ports(5060, 5060), To: []string{"10.0.0.4"}},
		{Open: true, To: []string{"10.0.0.5"}, Rule: "-d 192.0.2.1 -j DNAT", For: netip.MustParsePrefix("192.0.2.1/32")},
		{To: []string{"10.244.0.5:8080"}}, // reached from a rule with ports
		{Proto: 17, Ports: ports(53, 53), To: []string{":5300"}, In: "lan0"},
		{Proto: 6, Ports: ports(443, 443), To: []string{"10.244.0.9:8443"}, For: netip.MustParsePrefix("10.96.0.1/32")},
		{Proto: 6, Ports: ports(22, 22), To: []string{":2222"}, For: netip.MustParsePrefix("127.0.0.0/8")},
	}
	var got []string
	for _, p := range exposed.PublishedBy(rules, []string{"lan0"}) {
		got = append(got, fmt.Sprintf("%s to %s", p.Port, p.To))
	}
	want := "tcp/80 to 10.0.0.2 and [fd00::2]:80; tcp/81 to 10.0.0.2; udp/10000-20000 to 10.0.0.3; tcp/5060 to 10.0.0.4; udp/5060 to 10.0.0.4; 0 to 10.0.0.5"
	if all := strings.Join(got, "; "); all != want {
		t.Errorf("got  %s\nwant %s", all, want)
	}
	media := exposed.Published{Port: policy.Port{Proto: 17, First: 10000, Last: 20000}, To: "10.0.0.3"}
	for last, closed := range map[uint16]bool{19999: true, 20000: false} {
		if got := media.Closed([]exposed.Opening{{Ports: []policy.Port{{Proto: 17, First: 9000, Last: last}}}}); got != closed {
			t.Errorf("open up to %d: closed: %v", last, got)
		}
	}
}
