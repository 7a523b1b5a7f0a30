// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

// modelled is a model of one kind of packets: the rate in each second, and whether the packets are honest. Each call of next returns an incoming
// packet, and the answer of this host; "" means no packet.
type modelled struct {
	rate   func(second float64) float64
	honest bool
	next   func(r *rand.Rand) (arrives, answer string)
}

// exchange is a sequence of packets. A packet whose text begins with `leaves` is sent by this host. When a packet does not arrive, the rest is not
// sent.
type exchange struct {
	rate float64 // a second
	next func(r *rand.Rand) []string
}

const leaves = "< "

func always(rate float64) func(float64) float64 { return func(float64) float64 { return rate } }

// talker returns packets of a random client of a UDP service, with the answers of the service.
func talker(clients int, network, port string) func(*rand.Rand) (string, string) {
	return func(r *rand.Rand) (string, string) {
		n := r.IntN(clients)
		client := fmt.Sprintf("%s.%d.%d:%d", network, n/250, 1+n%250, 2000+n)
		payload := fmt.Sprintf("payload=0x%08x%08x", r.Uint32(), r.Uint32())
		return fmt.Sprintf("udp %s > 192.0.2.1:%s ttl=%d %s", client, port, 50+n%14, payload), fmt.Sprintf("udp 192.0.2.1:%s > %s %s", port, client, payload)
	}
}

func anybody(r *rand.Rand) string {
	return fmt.Sprintf("%d.%d.%d.%d", 100+r.IntN(80), r.IntN(256), r.IntN(256), 1+r.IntN(254))
}

// kind returns packets of an attack from random sources, without answers. The verbs in format are for the source address and its port.
func kind(format string) func(*rand.Rand) (string, string) {
	return func(r *rand.Rand) (string, string) { return fmt.Sprintf(format, anybody(r), 1024+r.IntN(60000)), "" }
}

var (
	ntpKind    = kind("udp %[1]s:123 > 192.0.2.1:%[2]d len=468 payload=0xd700032a00060048")
	cldapKind  = kind("udp %[1]s:389 > 192.0.2.1:%[2]d len=1400 payload=0x3084000005")
	bacnetKind = kind("udp %[1]s:47808 > 192.0.2.1:%[2]d len=80 payload=0x810a003401003001")
	synKind    = kind("tcp %s:%d > 192.0.2.1:443 S ttl=61 len=60")
	dnsKind    = kind("udp %[1]s:53 > 192.0.2.1:%[2]d len=1200 payload=0x123481800001001400000001")
)

// visitors is like talker, but after every `each` packets a new client replaces an old one.
func visitors(clients, each int, network, port string) func(*rand.Rand) (string, string) {
	sent := 0
	return func(r *rand.Rand) (string, string) {
		sent++
		n := sent/each + r.IntN(clients)
		client := fmt.Sprintf("%s.%d.%d:%d", network, n/250, 1+n%250, 2000+n%60000)
		payload := fmt.Sprintf("payload=0x%08x%08x", r.Uint32(), r.Uint32())
		return fmt.Sprintf("udp %s > 192.0.2.1:%s ttl=%d %s", client, port, 50+n%14, payload), fmt.Sprintf("udp 192.0.2.1:%s > %s %s", port, client, payload)
	}
}

// quietTime is the time for which only the usual mix is played at first. Samples within learnDelay of an attack are not learned.
const quietTime = learnDelay + settling + 11*time.Second

// usualMix returns the traffic of quiet times: two services with changing clients, and a connection.
func usualMix() []modelled {
	return []modelled{
		{always(600), true, visitors(60, 150, "203.0", "27015")}, {always(150), true, visitors(20, 40, "198.18", "5000")},
		{always(100), true, func(r *rand.Rand) (string, string) {
			return "tcp 203.0.113.9:40000 > 192.0.2.1:443 A len=600", "tcp 192.0.2.1:443 > 203.0.113.9:40000 A len=1200"
		}},
	}
}

// outcome is the result of a replay of models.
type outcome struct {
	*Replayed
	attack, attackDropped, honest, honestDropped int
}

// stage plays models, with a simulated clock.
type stage struct {
	*testing.T
	*replayer
	outcome
	draw    *rand.Rand
	frames  map[string][]byte
	cut     map[netip.Addr]bool // honest senders that lost a packet
	stopped time.Time           // when a packet was first dropped
	forward bool                // packets that arrive are also forwarded between devices of the policy
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{T: t, draw: rand.New(rand.NewPCG(1, 2)), frames: map[string][]byte{}, cut: map[netip.Addr]bool{}}
	s.outcome.Replayed = &Replayed{Hosts: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	s.replayer = newReplayer(&Replay{Detect: policy.UsualDetect()}, s.outcome.Replayed)
	s.begin, s.counts = s.replayer.now, true
	return s
}

func (s *stage) frame(text string) []byte {
	if b := s.frames[text]; b != nil {
		return b
	}
	spec, err := packet.Parse(text)
	if err != nil {
		s.Fatalf("%s: %v", text, err)
	}
	if len(s.frames) > 1000 {
		clear(s.frames)
	}
	s.frames[text] = spec.Frame()
	return s.frames[text]
}

// play plays models for a time, and counts the verdicts of their packets from zero.
func (s *stage) play(span time.Duration, list ...modelled) {
	s.Helper()
	const step = 10 * time.Millisecond
	due := make([]float64, len(list))
	s.outcome = outcome{Replayed: s.Replayed}
	for at := time.Duration(0); at < span; at += step {
		for i, m := range list {
			for due[i] += m.rate(at.Seconds()) * step.Seconds(); due[i] >= 1; due[i]-- {
				s.one(m)
			}
		}
		s.until(context.Background(), s.replayer.now.Add(step))
	}
}

// exchanges repeats an exchange at its rate for a time. It plays the models in list at the same time.
func (s *stage) exchanges(span time.Duration, of *exchange, list ...modelled) {
	due := 0.0
	s.play(span, append(list, modelled{always(1 / 0.01), true, func(r *rand.Rand) (string, string) {
		for due += of.rate * 0.01; due >= 1; due-- {
			for _, text := range of.next(r) {
				if answer, ok := strings.CutPrefix(text, leaves); ok {
					b := s.frame(answer)
					s.packet(&sample.Sample{Length: len(b), Frame: b})
				} else if !s.arrive(text, true) {
					break
				}
			}
		}
		return "", ""
	}})...)
}

// arrive plays a packet, and reports whether it passes.
func (s *stage) arrive(text string, honest bool) bool {
	before := s.dropped.Packets
	b := s.frame(text)
	s.packet(&sample.Sample{Length: len(b), Frame: b})
	dropped := int(s.dropped.Packets - before)
	if dropped > 0 && s.stopped.IsZero() {
		s.stopped = s.replayer.now
	}
	if honest {
		s.honest++
		s.honestDropped += dropped
		if dropped > 0 {
			s.cut[packet.Decode(b).Src] = true
		}
	} else {
		s.attack++
		s.attackDropped += dropped
	}
	if s.forward && dropped == 0 {
		s.sample(sample.Sample{Length: len(b), Frame: b, Time: s.replayer.now, Stands: 1, Verdict: sample.Forwarded})
	}
	return dropped == 0
}

// one plays one packet of a model, and the answer to it.
func (s *stage) one(m modelled) {
	arrives, answer := m.next(s.draw)
	if arrives != "" && s.arrive(arrives, m.honest) && answer != "" {
		b := s.frame(answer)
		s.packet(&sample.Sample{Length: len(b), Frame: b})
	}
}

// replayed plays models after the usual mix.
func replayed(t *testing.T, lasts time.Duration, models ...modelled) outcome {
	t.Helper()
	s := newStage(t)
	usual := usualMix()
	s.play(quietTime, usual...)
	s.begin = s.replayer.now
	s.play(lasts, append(usual, models...)...)
	s.keep()
	return s.outcome
}

func (o *outcome) share() float64 { return float64(o.attackDropped) / float64(max(1, o.attack)) }

// TestReplayAttacks plays attacks. Each attack must be named and dropped soon, and no honest packet may be dropped.
func TestReplayAttacks(t *testing.T) {
	t.Parallel()
	turns := func(kinds ...func(*rand.Rand) (string, string)) (list []modelled) {
		for i, k := range kinds {
			list = append(list, modelled{func(s float64) float64 {
				if int(s/5)%len(kinds) == i {
					return 3000
				}
				return 0
			}, false, k})
		}
		return list
	}
	for _, tt := range []struct {
		name    string
		lasts   time.Duration
		least   float64 // least share of the attack's packets that must be dropped
		named   float64 // the latest time at which the attack must be named, in seconds
		dropped float64
		at      string // the service
		models  []modelled
	}{
		{"NTP", 16 * time.Second, 0.85, 1, 2.5, "", []modelled{{always(3000), false, ntpKind}}},
		{"turns", 40 * time.Second, 0.75, 1, 2.5, "", turns(ntpKind, cldapKind, dnsKind, bacnetKind)},
		{"pulses", 55 * time.Second, 0.9, 1, 2.5, "", []modelled{{func(s float64) float64 {
			if int(s)%25 < 5 {
				return 3000
			}
			return 0
		}, false, ntpKind}}},
		// some packets hit the port of a service by chance, which answers them
		{"reflections to any port", 16 * time.Second, 0.85, 1, 2.5, "", []modelled{{always(3000), false, func(r *rand.Rand) (string, string) {
			from := fmt.Sprintf("110.0.%d.%d", r.IntN(8), 1+r.IntN(250))
			if r.IntN(400) == 0 {
				return fmt.Sprintf("udp %s:53 > 192.0.2.1:27015 len=1200 payload=0x123481800001001400000001", from), fmt.Sprintf("udp 192.0.2.1:27015 > %s:53", from)
			}
			return fmt.Sprintf("udp %s:53 > 192.0.2.1:%d len=1200 payload=0x123481800001001400000001", from, 1024+r.IntN(60000)), ""
		}}}},
		{"ramp", 40 * time.Second, 0.85, 10, 13, "", []modelled{{func(s float64) float64 { return 150 * s }, false, cldapKind}}},
		{"small service", 16 * time.Second, 0.8, 2, 3.5, "udp/5000", []modelled{{always(1800), false, kind("udp %s:%d > 192.0.2.1:5000 len=92 payload=0x0001000000000000")}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := replayed(t, tt.lasts, tt.models...)
			if len(out.Reports) == 0 {
				t.Fatalf("no attack is seen: %+v", out.Events)
			}
			r := out.Reports[0]
			if got := out.share(); got < tt.least || out.honestDropped > 0 {
				t.Errorf("dropped are %.1f%% of the attack, want %.0f%%, and %d honest packets; %+v", 100*got, 100*tt.least, out.honestDropped, out.Events)
			}
			if r.Times.Named > tt.named || r.Times.Dropped == 0 || r.Times.Dropped > tt.dropped {
				t.Errorf("times: %+v", r.Times)
			}
			if r.Parts[0].Verdict != Attack || tt.at != "" && r.Parts[0].At != tt.at {
				t.Errorf("parts: %+v", r.Parts)
			}
			if tt.name == "pulses" && len(out.Reports) > 1 {
				t.Errorf("%d reports", len(out.Reports))
			}
		})
	}
}

// TestReplayCrowds plays honest traffic far above the usual rate. None of it may be called an attack, and nothing may be dropped.
func TestReplayCrowds(t *testing.T) {
	t.Parallel()
	upload := func(r *rand.Rand) (string, string) {
		answer := ""
		if r.IntN(4) == 0 {
			answer = "tcp 192.0.2.1:443 > 198.51.100.7:50000 A len=52"
		}
		return fmt.Sprintf("tcp 198.51.100.7:50000 > 192.0.2.1:443 A len=1500 payload=0x%08x", r.Uint32()), answer
	}
	scan := func(r *rand.Rand) (string, string) {
		port := 1 + r.IntN(65000)
		return fmt.Sprintf("tcp 41.66.6.6:50000 > 192.0.2.1:%d S", port), fmt.Sprintf("tcp 192.0.2.1:%d > 41.66.6.6:50000 RA", port)
	}
	for name, models := range map[string][]modelled{
		"the usual":           nil,
		"a crowd of one /24":  {{always(4000), true, talker(240, "45.83", "27015")}},
		"a crowd of the web":  {{always(4000), true, talker(1500, "64.7", "27015")}, {always(1000), true, talker(1500, "64.7", "5000")}},
		"an upload":           {{always(4000), true, upload}},
		"a scan":              {{always(5000), true, scan}},
		"clients behind NAT":  {{always(4000), true, talker(1, "41.20", "27015")}},
		"the usual, doubling": {{func(s float64) float64 { return 600 * s / 5 }, true, talker(60, "203.0", "27015")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.play(quietTime, usualMix()...)
			s.play(20*time.Second+300*time.Millisecond, append(usualMix(), models...)...)
			out := s.outcome
			s.play(3*time.Second, usualMix()...) // the end of the crowd, within a counted second, must not count as an attack
			s.keep()
			if len(out.Reports) > 0 || out.honestDropped > 0 {
				for _, r := range out.Reports {
					t.Logf("%+v", r.Parts)
				}
				t.Errorf("%d reports, %d of %d honest packets dropped: %+v", len(out.Reports), out.honestDropped, out.honest, out.Events)
			}
		})
	}
}

// TestReplayUnclear plays floods against which no rule is safe: random packets, and packets that look like the clients' and are answered. No honest
// packet may be dropped, and the report must name remedies.
func TestReplayUnclear(t *testing.T) {
	t.Parallel()
	mimic := talker(60, "203.0", "27015")
	for name, next := range map[string]func(*rand.Rand) (string, string){
		"random": func(r *rand.Rand) (string, string) {
			b := make([]byte, 4+r.IntN(1000))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return fmt.Sprintf("udp %s:%d > 192.0.2.1:27015 ttl=%d payload=0x%x", anybody(r), 1+r.IntN(65535), 30+r.IntN(220), b), ""
		},
		"mimic": func(r *rand.Rand) (string, string) {
			from := fmt.Sprintf("%s:%d", anybody(r), 1024+r.IntN(60000))
			a, b := mimic(r)
			client := strings.Fields(a)[1]
			return strings.Replace(a, client, from, 1), strings.Replace(b, client, from, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := replayed(t, 16*time.Second, modelled{always(3000), false, next})
			if out.honestDropped > 0 {
				t.Errorf("%d honest packets are dropped: %+v", out.honestDropped, out.Events)
			}
			if len(out.Reports) != 1 || !strings.Contains(strings.Join(out.Reports[0].Advice, "\n"), "udp: protect") {
				t.Fatalf("advice: %+v", out.Reports)
			}
			if name == "mimic" && out.Reports[0].Parts[0].Verdict != Unclear {
				t.Errorf("parts: %+v", out.Reports[0].Parts)
			}
		})
	}
}

// TestReplayFiles replays captures, and checks the errors for bad ones.
func TestReplayFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, seconds float64, every time.Duration, next func(*rand.Rand) (string, string)) string {
		t.Helper()
		file := filepath.Join(dir, name)
		r := rand.New(rand.NewPCG(3, 4))
		var list []sample.Sample
		begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		for at := time.Duration(0); at.Seconds() < seconds; at += every {
			arrives, answer := next(r)
			for _, text := range []string{arrives, answer} {
				if text == "" {
					continue
				}
				spec, err := packet.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				b := spec.Frame()
				list = append(list, sample.Sample{Time: begin.Add(at), Device: "fw0", Length: len(b), Frame: b})
			}
		}
		writeCapture(t, file, list)
		return file
	}
	quiet := write("quiet.pcapng", 20, 2*time.Millisecond, talker(60, "203.0", "27015"))
	flood := write("flood.pcapng", 8, 200*time.Microsecond, ntpKind)
	out, err := (&Replay{Attack: flood, Baseline: quiet, Detect: policy.UsualDetect()}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out.Hosts[0].String() != "192.0.2.1" || out.Arrived != 40_000 || out.Dropped < 25_000 || len(out.Reports) != 1 {
		t.Errorf("%+v", out)
	}
	short := write("short.pcapng", 3, 2*time.Millisecond, talker(60, "203.0", "27015"))
	if _, err := (&Replay{Attack: flood, Baseline: short, Detect: policy.UsualDetect()}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "short.pcapng spans 3.0 s") {
		t.Errorf("a short baseline: %v", err)
	}
	if _, err := (&Replay{Attack: filepath.Join(dir, "none"), Detect: policy.UsualDetect()}).Run(t.Context()); err == nil {
		t.Error("a file that is missing is no error")
	}
}

func writeCapture(t *testing.T, file string, list []sample.Sample) {
	t.Helper()
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w, err := sample.NewFileWriter(out, 2048, "fw0")
	for i := 0; err == nil && i < len(list); i++ {
		err = w.Write(list[i], "")
	}
	if err != nil {
		t.Fatal(err)
	}
}
