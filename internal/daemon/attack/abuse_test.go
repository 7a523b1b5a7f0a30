// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
)

// newPlayers returns packets of new clients with a new program. The baseline contains neither the clients nor the program.
func newPlayers(r *rand.Rand) (string, string) {
	n := r.IntN(40)
	client, payload := fmt.Sprintf("45.83.0.%d:%d", 1+n, 2000+n), fmt.Sprintf("payload=0xfeed0102%08x", r.Uint32())
	return fmt.Sprintf("udp %s > 192.0.2.1:27015 ttl=%d %s", client, 50+n%14, payload), fmt.Sprintf("udp 192.0.2.1:27015 > %s %s", client, payload)
}

// ntpScan returns packets of one sender that tries all ports. Their payload is that of a later attack.
func ntpScan(r *rand.Rand) (string, string) {
	return fmt.Sprintf("udp 41.66.6.6:123 > 192.0.2.1:%d len=468 payload=0xd700032a00060048", 1+r.IntN(65000)), ""
}

// TestForgedClients sends forged packets of an attacker with the addresses and payloads of new players. The players must stay known.
func TestForgedClients(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.play(quietTime, usualMix()...)
	mix := append(usualMix(), modelled{always(400), true, newPlayers})
	s.play(5*time.Second, mix...)
	s.play(16*time.Second, append(mix, modelled{always(4000), false, func(r *rand.Rand) (string, string) {
		return fmt.Sprintf("udp 45.83.0.%d:%d > 192.0.2.1:27015 ttl=%d payload=0xfeed0102%08x", 1+r.IntN(40), 1024+r.IntN(60000), 50+r.IntN(14), r.Uint32()), ""
	}})...)
	if s.honestDropped > s.honest/1000 {
		t.Errorf("%d of %d honest packets are dropped: %+v", s.honestDropped, s.honest, s.Events)
	}
}

// TestBlind plays a crowd where packets that leave are not seen, and where the host forwards between devices of the policy. No rule must be added.
func TestBlind(t *testing.T) {
	t.Parallel()
	mute := func(list []modelled) (out []modelled) {
		for _, m := range list {
			next := m.next
			m.next = func(r *rand.Rand) (string, string) { arrives, _ := next(r); return arrives, "" }
			out = append(out, m)
		}
		return out
	}
	for _, forward := range []bool{false, true} {
		s := newStage(t)
		s.forward = forward
		crowd, usual := []modelled{{always(4000), true, newPlayers}}, usualMix()
		if !forward {
			crowd, usual = mute(crowd), mute(usual)
		}
		s.play(quietTime, usual...)
		s.play(12*time.Second, append(usual, crowd...)...)
		s.keep()
		if s.honestDropped > 0 {
			t.Errorf("forwarded %v: %d of %d honest packets are dropped: %+v", forward, s.honestDropped, s.honest, s.Events)
		}
		for _, r := range s.Reports {
			if r.Parts[0].Verdict == Attack {
				t.Errorf("forwarded %v: it is called an attack: %+v", forward, r.Parts)
			}
		}
	}
}

// TestUsualHour plays a crowd that comes each day at this hour. It must count as usual, although the rate of the last minutes was lower.
func TestUsualHour(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.play(quietTime, usualMix()...)
	for _, l := range s.traffic.loads() {
		for i := range l.hours {
			if l == s.traffic.total || l.name == "udp/27015" {
				l.hours[i] = mean{7000, hourMemory}
			}
		}
	}
	s.play(12*time.Second, append(usualMix(), modelled{always(5500), true, talker(240, "45.83", "27015")})...)
	s.keep()
	if len(s.Reports) > 0 || len(s.Events) > 0 {
		t.Errorf("%+v, %+v", s.Reports, s.Events)
	}
}

// TestPoison plays a scan, and a crowd from a pool of addresses, before an attack of the same kind. The learned rate and the baseline must not change
// so much that the attack is missed or gets no rule.
func TestPoison(t *testing.T) {
	t.Parallel()
	flood := modelled{always(4000), false, ntpKind}
	for name, before := range map[string]modelled{
		"a scan":               {always(1200), false, ntpScan},
		"a fast scan":          {always(5000), false, ntpScan},
		"a pool of addresses":  {always(6000), false, talker(200, "77.1", "27015")},
		"far too fast a scan.": {always(15_000), false, ntpScan},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.play(quietTime, usualMix()...)
			s.play(15*time.Second, append(usualMix(), before)...)
			if seen := s.Watcher.now != nil; seen != strings.HasSuffix(name, ".") {
				t.Errorf("called an attack: %v", seen)
			}
			s.play(40*time.Second, usualMix()...)
			if _, bound := s.traffic.total.level(s.replayer.now); bound > 4000 {
				t.Errorf("the bound is %.0f", bound)
			}
			s.play(8*time.Second, append(usualMix(), flood)...)
			if s.share() < 0.75 || s.honestDropped > 0 {
				t.Errorf("%.1f%% of the attack is dropped, and %d honest packets: %+v", 100*s.share(), s.honestDropped, s.Events)
			}
		})
	}
}

// TestBusyService plays more packets than the window holds. The rate of passing packets must be computed over the time that the window covers.
func TestBusyService(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	mix := append(usualMix(), modelled{always(2000), true, talker(60, "203.0", "27015")})
	s.play(quietTime, mix...)
	s.play(8*time.Second, append(mix, modelled{always(12_000), false, kind("udp %s:%d > 192.0.2.1:27015 len=92 payload=0x0001000000000000")})...)
	if s.share() < 0.7 || s.honestDropped > 0 {
		t.Errorf("%.1f%% of the attack is dropped, and %d honest packets: %+v", 100*s.share(), s.honestDropped, s.Events)
	}
}

// TestParts plays a repeated flood and a lasting flood at the same time. The repeated flood must be one part. When one of the floods has lasted too
// long, the report must continue with the other flood.
func TestParts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.play(quietTime, usualMix()...)
	small := kind("udp %s:%d > 192.0.2.1:5000 len=92 payload=0x0001000000000000")
	lasting := modelled{always(1800), false, ntpKind}
	s.play(50*time.Second, append(usualMix(), lasting, modelled{func(at float64) float64 {
		if int(at)%40 < 5 {
			return 2500
		}
		return 0
	}, false, small})...)
	counts := map[string]int{}
	for _, p := range s.Watcher.now.report.Parts {
		if counts[p.At]++; counts[p.At] > 1 {
			t.Errorf("%s is a part %d times", p.At, counts[p.At])
		}
	}
	s.traffic.other.rate.lasted = int(longest.Seconds()) - 3
	s.play(12*time.Second, append(usualMix(), lasting, modelled{always(1800), false, small})...)
	if s.Watcher.now == nil || s.share() < 0.4 {
		t.Errorf("the report goes on: %v, dropped are %.1f%%", s.Watcher.now != nil, 100*s.share())
	}
}

// TestClockSet changes the machine's clock while samples still have times of the earlier clock. The rate must stay the same.
func TestClockSet(t *testing.T) {
	for _, by := range []time.Duration{0, time.Second, 27 * time.Second, -27 * time.Second} {
		l := newLoad("web", 1000, time.Minute)
		for range leastSeconds {
			l.rate.usual = append(l.rate.usual, 10)
		}
		risen, at := 0, time.Now()
		for range 50 {
			for range 100 {
				at = at.Add(time.Millisecond)
				l.arrives(stepped(t, at, by), 5, stranger)
			}
			if l.tick(at) {
				risen++
			}
		}
		if risen < 40 {
			t.Errorf("set by %v, it has risen in %d of 50 tenths", by, risen)
		}
	}
}

// TestDamagedUsual reads impossible values. They must be skipped, and writing the remaining values must succeed.
func TestDamagedUsual(t *testing.T) {
	hours := strings.Repeat(`,{"mean":5,"seconds":-1}`, hoursOfWeek)[1:]
	var u usualFor
	if err := json.Unmarshal([]byte(`{"seconds":[-5,7,-5,1e300],"hours":[`+hours+`],"in":100,"out":1e300,"familiar":-4}`), &u); err != nil {
		t.Fatal(err)
	}
	l := newLoad("web", 1000, time.Minute)
	l.know(&u)
	l.learn(time.Now(), 7)
	if len(l.rate.usual) != 1 || l.usualOut != 0 {
		t.Errorf("taken over: %+v", l)
	}
	if text, err := json.Marshal(usualOf(l)); err != nil || strings.Contains(string(text), "-") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestGap replays a capture with a packet that is years away. Most of that time must be skipped.
func TestGap(t *testing.T) {
	s := newStage(t)
	s.play(time.Second, usualMix()...)
	file := t.TempDir() + "/gap.pcapng"
	b := s.frame("udp 198.51.100.1:9 > 192.0.2.1:9")
	at := time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)
	writeCapture(t, file, []sample.Sample{{Time: at, Device: "fw0", Length: len(b), Frame: b}, {Time: at.AddDate(56, 0, 0), Device: "fw0", Length: len(b), Frame: b}})
	if span, err := s.replayer.play(t.Context(), file); err != nil || span > 2*longestGap {
		t.Errorf("it spans %v, %v", span, err)
	}
}
