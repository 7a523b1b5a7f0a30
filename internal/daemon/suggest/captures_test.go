// SPDX-License-Identifier: Apache-2.0

package suggest_test

import (
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/suggesttest"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestCaptures finds rules against real attacks in 5 seconds of their traffic. The rules must match at least 95% of the packets of the whole attack,
// and at most 0.1% of legitimate packets that the search did not get. The legitimate packets are generated, and also the attacks whose captures are
// missing. With FLOODWALL_LONG=1, the legitimate packets are those that scripts/traces fetches.
func TestCaptures(t *testing.T) {
	t.Parallel()
	r := testutil.Random(t)
	baseline, judged := legitimate(r, 10_000), legitimate(r, 10_000)
	if testutil.Long() {
		learned, kept := suggesttest.Recorded(t)
		baseline, judged = samples(learned), samples(kept)
	}
	for _, a := range suggesttest.Attacks(t, "../../..", r) {
		var first, attack []suggest.Sample
		for _, p := range a.Packets {
			s := suggest.NewSample(p)
			if p.Time.Sub(a.Packets[0].Time) <= 5*time.Second && len(first) < suggest.MostAttack {
				first = append(first, s)
			}
			if a.Is(&s.Packet) {
				attack = append(attack, s)
			}
		}
		found, err := suggest.Find(suggest.Input{Program: &ir.Program{}, Attack: first, Good: baseline, Collateral: 0.001})
		check(t, err)
		covered, harmed := 0, 0
		for _, rule := range found.Rules {
			covered += matches(t, rule, attack) // rules do not overlap
			harmed += matches(t, rule, judged)
			t.Logf("%s", rule.Text)
		}
		coverage, collateral := float64(covered)/float64(len(attack)), float64(harmed)/float64(len(judged))
		t.Logf("%s: %.2f%% of %d packets of the attack, %.3f%% of %d legitimate ones", a.Name, 100*coverage, len(attack), 100*collateral, len(judged))
		if len(attack) < 1000 || coverage < 0.95 || collateral > 0.001 {
			t.Errorf("%s: want at least 95%% of the attack, and at most 0.1%% of the legitimate packets", a.Name)
		}
	}
}

func matches(t *testing.T, rule suggest.Rule, samples []suggest.Sample) int {
	t.Helper()
	signature, _, err := suggest.ReadSignature(rule.Text)
	check(t, err)
	n := 0
	for i := range samples {
		if signature.Has(&samples[i]) {
			n++
		}
	}
	return n
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func samples(frames [][]byte) (list []suggest.Sample) {
	for _, frame := range frames {
		list = append(list, suggest.NewSample(sample.Sample{Frame: frame, Length: len(frame)}))
	}
	return list
}
