// SPDX-License-Identifier: Apache-2.0

package suggest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// TestOtherBaseline uses baselines that cannot show the harm of a rule, and no baseline. The result must name the properties that a baseline lacks.
// Without a baseline, no rule may test only properties that clients have.
func TestOtherBaseline(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	syns := packets(1000, func() string {
		return fmt.Sprintf("tcp %s:%d > 10.10.10.10:443 S ttl=%d seq=%d tcpopts=mss:1460,nop,ws:8,nop,nop,sack", anywhere(r), 1024+r.IntN(60000), 40+r.IntN(80), r.Uint32())
	})
	ntp := packets(1000, func() string {
		return fmt.Sprintf("udp %s:123 > 10.10.10.10:%d len=468 ttl=%d payload=0xd7000348", anywhere(r), r.IntN(65536), 40+r.IntN(80))
	})
	acks := packets(1000, func() string {
		return fmt.Sprintf("tcp %s:%d > 10.10.10.10:443 A ttl=%d seq=%d ack=%d win=77", anywhere(r), 1024+r.IntN(60000), 40+r.IntN(80), r.Uint32(), r.Uint32())
	})
	elsewhere := packets(3000, func() string {
		return fmt.Sprintf("tcp %s:%d > 10.99.99.99:443 A ttl=52 seq=%d len=%d", anywhere(r), 1024+r.IntN(60000), r.Uint32(), 40+r.IntN(1400))
	})
	search := func(attack, good []suggest.Sample) []suggest.Rule {
		found, err := suggest.Find(suggest.Input{Program: &ir.Program{}, Attack: attack, Good: good, Collateral: 0.001})
		check(t, err)
		return found.Rules
	}
	for _, rule := range search(syns, elsewhere) {
		if !rule.SYNs || rule.Unlike == "" && rule.Collateral.Packets == 0 && strings.Contains(rule.Text, "to:") {
			t.Errorf("against SYNs: %+v", rule)
		}
	}
	rules := search(ntp, elsewhere)
	if len(rules) == 0 || rules[0].Unlike == "" || rules[0].SYNs {
		t.Errorf("against NTP, with TCP alone in the baseline: %+v", rules)
	}
	for name, attack := range map[string][]suggest.Sample{"SYNs": syns, "ACKs": acks} {
		if rules := search(attack, nil); len(rules) > 0 {
			t.Errorf("against %s without a baseline: %+v", name, rules)
		}
	}
	if rules := search(ntp, nil); len(rules) == 0 {
		t.Error("against NTP without a baseline: no rule")
	}
}
