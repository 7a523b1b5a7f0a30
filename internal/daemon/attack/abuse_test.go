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

// newPlayers are clients whom the baseline does not know, with a program that it does not know.
func newPlayers(r *rand.Rand) (string, string) {
	n := r.IntN(40)
	client, payload := fmt.Sprintf("45.83.0.%d:%d", 1+n, 2000+n), fmt.Sprintf("payload=0xfeed0102%08x", r.Uint32())
	return fmt.Sprintf("udp %s > 192.0.2.1:27015 ttl=%d %s", client, 50+n%14, payload), fmt.Sprintf("udp 192.0.2.1:27015 > %s %s", client, payload)
}

// ntpScan is one sender who asks all ports, with what an attack will have.
func ntpScan(r *rand.Rand) (string, string) {
	return fmt.Sprintf("udp 41.66.6.6:123 > 192.0.2.1:%d len=468 payload=0xd700032a00060048", 1+r.IntN(65000)), ""
}

// TestForgedClients has an attacker send what new players send, in their names: that takes none of their standing away.
func TestForgedClients(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.play(36*time.Second, usualMix()...)
	mix := append(usualMix(), modelled{always(400), true, newPlayers})
	s.play(5*time.Second, mix...)
	s.play(16*time.Second, append(mix, modelled{always(4000), false, func(r *rand.Rand) (string, string) {
		return fmt.Sprintf("udp 45.83.0.%d:%d > 192.0.2.1:27015 ttl=%d payload=0xfeed0102%08x", 1+r.IntN(40), 1024+r.IntN(60000), 50+r.IntN(14), r.Uint32()), ""
	}})...)
	if s.honestDropped > s.honest/1000 {
		t.Errorf("%d of %d honest packets are dropped: %+v", s.honestDropped, s.honest, s.Events)
	}
}

// TestBlind has a crowd where nobody sees what leaves, and where the host forwards between devices of the policy. No rule is added.
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
		s.play(36*time.Second, usual...)
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

// TestUsualHour has the crowd of each day at this hour: it is usual, though the last minutes were not so.
func TestUsualHour(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.play(36*time.Second, usualMix()...)
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

// TestPoison has a scan, and a crowd from a pool of addresses, before an attack of the same kind: these teach neither the rate nor the baseline so that the
// attack is not seen, or has no rule.
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
			s.play(36*time.Second, usualMix()...)
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

// TestBusyService has more packets than the window holds: what passes is counted over the time that it covers.
func TestBusyService(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	mix := append(usualMix(), modelled{always(2000), true, talker(60, "203.0", "27015")})
	s.play(36*time.Second, mix...)
	s.play(8*time.Second, append(mix, modelled{always(12_000), false, kind("udp %s:%d > 192.0.2.1:27015 len=92 payload=0x0001000000000000")})...)
	if s.share() < 0.7 || s.honestDropped > 0 {
		t.Errorf("%.1f%% of the attack is dropped, and %d honest packets: %+v", 100*s.share(), s.honestDropped, s.Events)
	}
}

// TestParts has a flood that comes again and again beside one that lasts: it is one part. When one of them has lasted for too long, the report goes on
// with the other.
func TestParts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.play(36*time.Second, usualMix()...)
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

// TestClockSet has somebody set the clock of the machine: samples have the one of before, and the rate is the same.
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
				l.arrives(stepped(t, at, by), 5, false)
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

// TestDamagedUsual reads what cannot be: it is left out, and what is kept can be written again.
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

// TestGap replays a capture with a packet that is years away: most of that time is left out.
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
