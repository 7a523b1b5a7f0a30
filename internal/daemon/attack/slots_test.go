// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestSlots plays more kinds of attacks than the maximum number of rules, and reflections from four ports. Similar rules must be merged.
func TestSlots(t *testing.T) {
	t.Parallel()
	kinds := []func(*rand.Rand) (string, string){
		ntpKind, cldapKind, dnsKind, bacnetKind, kind("udp %[1]s:1900 > 192.0.2.1:%[2]d len=340 payload=0x485454502f312e31"), kind("udp %[1]s:161 > 192.0.2.1:%[2]d len=900 payload=0x308203"),
	}
	var turns []modelled
	for i, k := range kinds {
		turns = append(turns, modelled{func(s float64) float64 {
			if int(s/5)%len(kinds) == i {
				return 3000
			}
			return 0
		}, false, k})
	}
	from := func(ports []int, rest string) []modelled {
		return []modelled{{always(3000), false, func(r *rand.Rand) (string, string) {
			return fmt.Sprintf("tcp %s:%d > 192.0.2.1:%d %s ttl=%d seq=%d ack=%d", anybody(r), ports[r.IntN(len(ports))], 1024+r.IntN(60000), rest, 40+r.IntN(80), r.Uint32(), r.Uint32()), ""
		}}}
	}
	for name, tt := range map[string]struct {
		models []modelled
		lasts  time.Duration
		least  float64 // of all packets, and of those after 5 s
		later  float64
	}{
		"six reflectors in turn":  {turns, 60 * time.Second, 0.75, 0.75},
		"SYN-ACKs of four ports":  {from([]int{80, 443, 22, 53}, "SA"), 15 * time.Second, 0.85, 0.95},
		"an amplification of TCP": {from([]int{80}, "PA len=1400 payload=0x485454502f312e3120343033"), 15 * time.Second, 0.85, 0.98},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			usual := usualMix()
			s.play(quietTime, usual...)
			mix := append(usual, tt.models...)
			s.play(5*time.Second, mix...)
			first, all := s.attackDropped, s.attack
			for i := range tt.models { // they continue where they were
				rate := tt.models[i].rate
				mix[len(usual)+i].rate = func(at float64) float64 { return rate(at + 5) }
			}
			s.play(tt.lasts-5*time.Second, mix...)
			if share := float64(first+s.attackDropped) / float64(all+s.attack); share < tt.least || s.share() < tt.later || s.honestDropped > 0 {
				t.Errorf("dropped are %.1f%%, later %.1f%%, and %d honest packets", 100*share, 100*s.share(), s.honestDropped)
				for _, e := range s.Events {
					t.Logf("%.1f %.250s", e.Seconds-quietTime.Seconds(), e.Text)
				}
			}
			if rules := len(s.inForce); rules > s.settings.Auto.Max {
				t.Errorf("%d rules are in force", rules)
			}
		})
	}
}
