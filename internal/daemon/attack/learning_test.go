// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
)

// TestWhyNoRule plays attacks while `auto` cannot add rules. The state, an event and the report must say why. When `auto` can add rules again, it
// must add one.
func TestWhyNoRule(t *testing.T) {
	t.Parallel()
	flood := modelled{always(3000), false, ntpKind}
	for _, tt := range []struct {
		name  string
		quiet time.Duration
		want  string // in the state, before the attack
	}{
		{"nothing is usual yet", 4 * time.Second, "of 10 seconds were seen"},
		{"few samples", 14 * time.Second, "0 of 38"},
		{"enough", quietTime, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			usual := usualMix()
			s.play(tt.quiet, usual...)
			if lacks := s.learning().Lacks; !strings.Contains(lacks, tt.want) || (lacks == "") != (tt.want == "") {
				t.Errorf("before the attack: %q", lacks)
			}
			s.play(4*time.Second, append(usual, flood)...)
			s.keep()
			if tt.quiet < leastSeconds*time.Second {
				return // no attack can be detected
			}
			told := false
			for _, e := range s.Events {
				told = told || strings.Contains(e.Text, "no rule is added: ") && strings.Contains(e.Text, tt.want)
			}
			if told != (tt.want != "") || len(s.Reports) != 1 || (s.Reports[0].NoRule == "") != (tt.want == "") || (s.Dropped > 0) != (tt.want == "") {
				t.Errorf("%d packets are dropped, told %+v, reports %+v", s.Dropped, s.Events, s.Reports)
			}
		})
	}
}

// TestWhyRulesAreUnfit checks the reason in the report when the found rules could shut clients out.
func TestWhyRulesAreUnfit(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]modelled{
		"matches SYNs": {always(3000), false, synKind},
		"every client begins with what it matches (A2S query flood)": floodsBeside()[8],
	} {
		out := replayed(t, 4*time.Second, m)
		if len(out.Reports) != 1 || !strings.Contains(out.Reports[0].NoRule, want) || out.Dropped > 0 {
			t.Errorf("want %q: %d packets are dropped, %+v", want, out.Dropped, out.Reports)
		}
	}
}

// TestLearningIsNoted learns what is usual some seconds after the state was written. The written state must soon say so, and must never be stale.
func TestLearningIsNoted(t *testing.T) {
	w := New(operate.Host{}, Store{t.TempDir()}, nil)
	begin := time.Now()
	for second := range 100 {
		w.at = begin.Add(time.Duration(second) * time.Second)
		if second == 32 {
			w.traffic.total.rate.usual = append(w.traffic.total.rate.usual, make([]float64, leastSeconds)...)
		}
		w.noteLearning()
		var l Learning
		if err := w.store.readJSON(learningName, &l); err != nil {
			t.Fatal(err)
		}
		if age := w.at.Sub(l.Updated); age >= staleAfter {
			t.Fatalf("in second %d the state is %v old", second, age)
		}
		if learned := second > 32+int(noteEvery/time.Second); learned != (l.Text() == "") && (second < 32 || learned) {
			t.Fatalf("in second %d the state says %q", second, l.Text())
		}
	}
}
