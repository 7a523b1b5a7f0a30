// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestTimesAgree compares the times in a report with an independent clock: when the first packet of the attack arrived, when the attack was named,
// and when the first packet was dropped. The peak must be no less than the usual rate, and no advice must be given for packets that a rule drops.
func TestTimesAgree(t *testing.T) {
	t.Parallel()
	const most = 0.2 // seconds
	some := func(models ...modelled) []modelled { return models }
	later := func(m modelled, from float64) modelled {
		rate := m.rate
		m.rate = func(s float64) float64 {
			if s < from {
				return 0
			}
			return rate(s)
		}
		return m
	}
	busy := modelled{always(3000), true, talker(60, "203.0", "27015")}
	small := modelled{always(1800), false, kind("udp %s:%d > 192.0.2.1:5000 len=92 payload=0x0001000000000000")}
	mimic := modelled{always(3000), false, func(r *rand.Rand) (string, string) {
		arrives, answers := talker(60, "203.0", "27015")(r)
		from, client := anybody(r)+":4000", strings.Fields(arrives)[1]
		return strings.Replace(arrives, client, from, 1), strings.Replace(answers, client, from, 1)
	}}
	for name, tt := range map[string]struct {
		usual, attack []modelled
		from          float64 // time of the attack's first packet, in seconds
		drops         bool
	}{
		"NTP":                     {usualMix(), some(modelled{always(3000), false, ntpKind}), 0, true},
		"within a second":         {usualMix(), some(later(modelled{always(3000), false, ntpKind}, 0.73)), 0.73, true},
		"a small service":         {append(usualMix(), busy), some(small), 0, true},
		"named after a while":     {usualMix(), some(mimic), 0, false},
		"two, of which one drops": {usualMix(), some(modelled{always(3000), false, ntpKind}, later(modelled{always(3000), false, synKind}, 3)), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.play(quietTime, tt.usual...)
			began := s.replayer.now.Add(time.Duration(tt.from * float64(time.Second)))
			s.begin = began
			span := 7 * time.Second
			if !tt.drops { // the verdict waits for senders to go on
				span = goOnFor + 2*time.Second
			}
			s.play(span, append(tt.usual, tt.attack...)...)
			s.keep()
			if len(s.Reports) != 1 || len(s.Events) == 0 {
				t.Fatalf("%d reports, %+v", len(s.Reports), s.Events)
			}
			r := s.Reports[0]
			if d := r.Started.Sub(began.UTC()).Seconds(); math.Abs(d) > most {
				t.Errorf("it began %.2f s after its first packet", d)
			}
			if d := r.Times.Named - s.Events[0].Seconds; math.Abs(d) > most {
				t.Errorf("named after %.2f s, said %.2f s after the first packet", r.Times.Named, s.Events[0].Seconds)
			}
			if tt.drops != !s.stopped.IsZero() {
				t.Fatalf("dropped: %v, %+v", s.stopped, s.Events)
			}
			advice := strings.Join(r.Advice, "\n")
			if tt.drops {
				if d := r.Times.Dropped - s.stopped.Sub(began).Seconds(); math.Abs(d) > most {
					t.Errorf("dropped after %.2f s, %.2f s after the first packet that was", r.Times.Dropped, r.Times.Dropped-d)
				}
				for _, step := range r.Steps {
					if d := step.Time.Sub(s.stopped.UTC()).Seconds(); step.Did == Drops && step.Rule == "auto-1" && math.Abs(d) > most {
						t.Errorf("the step is %.2f s after the first packet that was dropped", d)
					}
				}
				if two := len(tt.attack) > 1; strings.Contains(advice, "no safe rule") != two || two && !strings.Contains(advice, "tcp/443") {
					t.Errorf("advice: %q", advice)
				}
			}
			if r.Peak.Packets < r.Usual || r.Peak.Packets < 3000 && name == "a small service" {
				t.Errorf("the peak is %.0f packets/s, usual are %.0f", r.Peak.Packets, r.Usual)
			}
		})
	}
}
