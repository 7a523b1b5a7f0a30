// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// feed adds seconds to a rate and counts the changes. packets varies randomly by the share varies.
func (r *rate) feed(draw *rand.Rand, seconds int, packets, varies float64) (changes map[change]int) {
	changes = map[change]int{}
	for range seconds {
		turn := r.add(packets * (1 + varies*(2*draw.Float64()-1)))
		changes[turn]++
		if turn == begins {
			_, bound := r.level()
			r.begin(bound)
		}
	}
	return changes
}

// TestRate feeds the rates of seconds. An attack must begin once and end once, even if the rate varies around the bound. Neither slow growth nor a
// single second may begin an attack.
func TestRate(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	quiet := func() *rate {
		r := &rate{least: 1000, quiet: 30 * time.Second}
		if got := r.feed(draw, 300, 5000, 0.4); got[nothing] != 300 {
			t.Fatalf("quiet times: %v", got)
		}
		return r
	}
	r := quiet()
	if got := r.feed(draw, 60, 100_000, 0.4); got[begins] != 1 || got[ends] != 0 {
		t.Errorf("an attack: %v", got)
	}
	if got := r.feed(draw, 29, 5000, 0.4); got[nothing] != 29 { // the attack pauses
		t.Errorf("a pause: %v", got)
	}
	if got := r.feed(draw, 30, 100_000, 0.4); got[nothing] != 30 {
		t.Errorf("the attack goes on: %v", got)
	}
	if got := r.feed(draw, 40, 5000, 0.4); got[ends] != 1 || got[begins] != 0 {
		t.Errorf("the end: %v", got)
	}
	r = quiet()
	_, bound := r.level()
	if got := r.feed(draw, 3600, bound, 0.1); got[begins] > 1 || got[ends] > 0 {
		t.Errorf("an hour near the bound: %v", got)
	}
	r = quiet()
	for range 20 {
		if got := r.feed(draw, 1, 500_000, 0); got[nothing] != 1 {
			t.Errorf("one second: %v", got)
		}
		r.feed(draw, 5, 5000, 0.4)
	}
	r = quiet()
	for rate := 5000.0; rate < 50_000; rate *= 1.005 { // tenfold in an hour and a quarter
		if got := r.feed(draw, 10, rate, 0.3); got[begins] > 0 {
			t.Fatalf("what grows slowly to %.0f: %v", rate, got)
		}
	}
	r = &rate{least: 1000, quiet: 30 * time.Second}
	if got := r.feed(draw, 60, 900, 0.1); got[begins] != 0 {
		t.Errorf("below the least: %v", got)
	}
	r = quiet()
	if got := r.feed(draw, 7*3600, 100_000, 0.2); got[begins] != 1 || got[lasts] != 1 || got[ends] != 0 {
		t.Errorf("for seven hours: %v", got)
	}
}

// TestVectors checks the names of kinds of packets.
func TestVectors(t *testing.T) {
	for line, want := range map[string]string{
		"udp 198.51.100.1:123 > 192.0.2.1:4000 len=468 payload=0xd700032a":                                        "NTP amplification",
		"udp 198.51.100.1:53 > 192.0.2.1:4000 payload=0x123481800001":                                             "DNS amplification",
		"udp 198.51.100.1:53 > 192.0.2.1:53 payload=0x123401000001":                                               "DNS query flood",
		"udp 198.51.100.1:4000 > 192.0.2.1:53 dns=A,www.example":                                                  "DNS query flood",
		"udp [2001:db8::1]:11211 > [2001:db8::2]:80":                                                              "memcached amplification",
		"udp 198.51.100.1:4500 > 192.0.2.1:9 payload=0x00000000c983":                                              "IKE amplification",
		"udp 198.51.100.1:4500 > 192.0.2.1:9 payload=0xc983000000000000":                                          "UDP flood", // ESP in UDP
		"udp 198.51.100.1:4000 > 192.0.2.1:80":                                                                    "UDP flood",
		"udp 198.51.100.1:4000 > 192.0.2.1:27015 payload=0xffffffff5501020304":                                    "A2S query flood",
		"udp 198.51.100.1:4000 > 192.0.2.1:19132 len=528 payload=0x0500ffff00fefefefefdfdfdfd123456780b":          "RakNet request flood",
		"udp 198.51.100.1:4000 > 192.0.2.1:51820 len=176 payload=0x0100000012345678":                              "WireGuard handshake flood",
		"udp 198.51.100.1:4000 > 192.0.2.1:443 len=1280 payload=0xc300000001080102030405060708081112131415161718": "QUIC Initial flood",
		"tcp 198.51.100.1:4000 > 192.0.2.1:80 S":                                                                  "SYN flood",
		"tcp 198.51.100.1:4000 > 192.0.2.1:80 SA":                                                                 "SYN-ACK reflection",
		"tcp 198.51.100.1:53 > 192.0.2.1:80 A":                                                                    "ACK flood",
		"tcp 198.51.100.1:4000 > 192.0.2.1:80 R":                                                                  "RST flood",
		"icmp 198.51.100.1 > 192.0.2.1 echo-request":                                                              "ping flood",
		"proto=47 198.51.100.1 > 192.0.2.1":                                                                       "flood of IP protocol 47",
	} {
		spec, err := packet.Parse(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		frame := spec.Frame()
		s := suggest.NewSample(sample.Sample{Frame: frame, Length: len(frame)})
		if got := vectorOf(&s); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// TestBaseline learns samples of quiet times. The baseline must keep a limited number of samples, and none that an attack followed.
func TestBaseline(t *testing.T) {
	var b baseline
	now := time.Now()
	b.add(sample.Sample{Time: now, Reason: "a"})
	b.learn(now.Add(learnDelay / 2))
	b.forget()
	b.learn(now.Add(2 * learnDelay))
	if len(b.samples) != 0 {
		t.Error("learned what came right before an attack")
	}
	for i := range 3 * mostLearned {
		b.add(sample.Sample{Time: now.Add(time.Duration(i))})
	}
	b.learn(now.Add(2 * learnDelay))
	if len(b.samples) != mostLearned || len(b.pending) != 0 {
		t.Errorf("%d samples, %d wait", len(b.samples), len(b.pending))
	}
}

// TestStore checks that the store keeps the latest reports within its limits, and that only valid IDs open a report. A truncated report must be
// skipped.
func TestStore(t *testing.T) {
	s := InState(t.TempDir(), "/sys/fs/bpf/floodwall", "/sys/fs/bpf/floodwall")
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range mostReports + 5 {
		at := begin.Add(time.Duration(i) * time.Minute)
		r := &Report{ID: at.Format("20060102-150405"), Started: at}
		if err := errors.Join(s.save(r, []sample.Sample{{Time: at, Device: "fw0", Length: 60, Frame: make([]byte, 60)}}), s.prune()); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.List()
	if err != nil || len(list) != mostReports || list[0].ID != begin.Add((mostReports+4)*time.Minute).Format("20060102-150405") {
		t.Fatalf("%d reports, %v", len(list), err)
	}
	files, _ := filepath.Glob(filepath.Join(s.dir, "*"))
	if len(files) != 2*mostReports {
		t.Errorf("%d files", len(files))
	}
	if err := os.WriteFile(filepath.Join(s.dir, list[0].ID+reportFile), []byte(`{"id": "2026`), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(); err != nil || len(list) != mostReports-1 {
		t.Errorf("with a damaged one: %d, %v", len(list), err)
	}
	for _, bad := range []string{"", "usual", "../usual", "20260102-030405/../usual", "20260102-030405\x00"} {
		if _, err := s.Report(bad); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := s.Capture(bad); !errors.Is(err, ErrUnknown) {
			t.Errorf("the capture of %q: %v", bad, err)
		}
	}
}

// TestFullDisk saves a report on a full disk. The earlier report must stay whole, no other file may be left, and the error must name the file.
func TestFullDisk(t *testing.T) {
	s := Store{t.TempDir()}
	r := &Report{ID: "20260102-030405"}
	if err := s.save(r, nil); err != nil {
		t.Fatal(err)
	}
	err := s.replace(r.ID+reportFile, func(f *os.File) error {
		f.WriteString("{")
		return errors.New("no space left on device")
	})
	if err == nil || !strings.Contains(err.Error(), r.ID) {
		t.Errorf("error %v", err)
	}
	if _, err := s.Report(r.ID); err != nil {
		t.Error(err)
	}
	if files, _ := filepath.Glob(filepath.Join(s.dir, "*")); len(files) != 1 {
		t.Errorf("left: %v", files)
	}
}

// TestHTML writes a page. Markup in names must appear as text.
func TestHTML(t *testing.T) {
	var b strings.Builder
	share := 0.5
	r := &Report{
		ID: "20260102-030405", Policy: "<script>alert(1)</script>", Reasons: []Reason{{Name: `"><img src=x onerror=alert(1)>`}},
		Vectors: []Vector{{"<b>", 1, 2}}, Samples: &operate.Samples{Sources: []operate.Talker{{Key: "</table>", Dropped: &share}}},
		Suggestion: &Suggestion{Rules: []suggest.Rule{{Text: "{payload: \"</pre><script>\"}"}}},
		Outcomes:   []Reason{{Name: "web:cookies</td>", Verdict: "sent", Amount: operate.Amount{Packets: 4711}}},
		Steps:      []Step{{Rule: "auto-1", Did: Drops, Why: "<i>because"}},
	}
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script", "<img", "<b>", "http://", "https://", "</pre><"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("the page has %s:\n%s", bad, b.String())
		}
	}
	for _, want := range []string{"web:cookies&lt;/td&gt;", ">4,711<", "auto-1", "&lt;i&gt;because"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %s:\n%s", want, b.String())
		}
	}
	if fmt.Sprint(strings.Count(b.String(), "</table>")) != "7" {
		t.Errorf("%d tables", strings.Count(b.String(), "</table>"))
	}
}

// TestUsualKinds checks that a report leaves out kinds of packets with their usual rate. It also checks that unfinished files of a killed daemon are
// removed.
func TestUsualKinds(t *testing.T) {
	begin := time.Now()
	c := newCollecting(Report{Started: begin, Usual: 1000}, nil)
	c.oneIn = 10
	for i := range 1000 {
		line := "tcp 203.0.113.1:4000 > 192.0.2.1:443 A len=600"
		if i%2 == 0 {
			line = "udp 198.51.100.1:123 > 192.0.2.1:4000 len=468"
		}
		spec, err := packet.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		frame := spec.Frame()
		c.see(&seen{Sample: suggest.NewSample(sample.Sample{Time: begin, Device: "fw0", Length: len(frame), Frame: frame, Verdict: "pass"})}, false)
	}
	c.report.Active = 10
	c.usual = map[string]float64{"ACK flood": 1}
	c.report.Passed.Packets = 2000 * 10 // so that the rate of ACKs is the usual one
	c.renew(begin.Add(10*time.Second), 0, 0)
	if v := c.report.Vectors; len(v) != 1 || v[0].Name != "NTP amplification" || c.report.Note != "" {
		t.Errorf("%+v, %q", v, c.report.Note)
	}
	c.report.Passed.Packets *= 10
	c.renew(begin.Add(10*time.Second), 0, 0)
	if v := c.report.Vectors; len(v) != 2 {
		t.Errorf("ten times as many: %+v", v)
	}
	s := Store{t.TempDir()}
	for _, name := range []string{".floodwall-1234", "20260102-030405.pcapng", "20260102-030406.json", "20260102-030406.pcapng", baselineName} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.clean()
	if files, err := os.ReadDir(s.dir); len(files) != 3 || err != nil {
		t.Errorf("left: %v, %v", files, err)
	}
}

// reading returns a status whose counters were 0 some seconds before. The protection counts SYNs that the rule also counts.
func reading(passed, dropped, beside uint64) *control.Status {
	count := func(name, verdict string, n uint64, beside bool) control.RuleStatus {
		return control.RuleStatus{Name: name, Verdict: verdict, Packets: n, Bytes: 100 * n, Beside: beside}
	}
	return &control.Status{
		Rules:   []control.RuleStatus{count("flood", "drop", dropped, false), count("web:cookies", "drop", beside, true), count("web:good", "pass", beside, true)},
		Default: count("default", "pass", passed, false), NotIP: count("not-ip", "pass", 0, false),
	}
}

// TestAmounts checks that each packet of an attack is counted once, from the first second above the bound.
func TestAmounts(t *testing.T) {
	w := New(operate.Host{}, Store{t.TempDir()}, func(Event) {})
	w.traffic = newTraffic(1000, 2*time.Second)
	w.at = time.Now()
	second := func(passed, dropped, beside uint64) {
		w.at = w.at.Add(time.Second)
		now := reading(passed, dropped, beside)
		now.Read = time.Time{}.Add(time.Second)
		w.judge(operate.Between(&control.Status{}, now), 1, 0)
	}
	for range 2 * leastSeconds {
		second(100, 0, 10)
	}
	second(2000, 0, 500)
	second(3000, 5000, 700)
	second(4000, 50_000, 900)
	if w.now == nil {
		t.Fatal("no attack is seen")
	}
	r := &w.now.report
	if r.Passed != (operate.Amount{Packets: 9000, Bytes: 900_000}) || r.Dropped != (operate.Amount{Packets: 55_000, Bytes: 5_500_000}) || r.Peak.Packets != 54_000 {
		t.Errorf("at the beginning: passed %v, dropped %v, peak %v", r.Passed, r.Dropped, r.Peak)
	}
	second(1000, 20_000, 100)
	if r.Passed.Packets != 10_000 || r.Dropped.Packets != 75_000 {
		t.Errorf("a second later: passed %v, dropped %v", r.Passed, r.Dropped)
	}
}

// TestTimesOfTheAttackAlone plays an attack of 12 seconds with a pause of 2 seconds, followed by 10 quiet seconds. Times, counts and rates must be
// those of the attack alone. The text and the page must agree.
func TestTimesOfTheAttackAlone(t *testing.T) {
	var told []Event
	w := New(operate.Host{}, Store{t.TempDir()}, func(e Event) { told = append(told, e) })
	w.traffic, w.settings.On = newTraffic(1000, 10*time.Second), true
	w.at = time.Date(2026, 1, 2, 3, 4, 5, 900_000_000, time.UTC)
	spec, err := packet.Parse("udp 198.51.100.7:123 > 192.0.2.1:4000 len=468")
	if err != nil {
		t.Fatal(err)
	}
	frame := spec.Frame()
	second := func(packets uint64, samples int) {
		w.at = w.at.Add(time.Second)
		for range samples {
			w.sample(sample.Sample{Time: w.at, Device: "fw0", Length: len(frame), Frame: frame, Verdict: "drop"})
		}
		now := reading(0, packets, 0)
		now.Read = time.Time{}.Add(time.Second)
		w.judge(operate.Between(&control.Status{}, now), 1, 0)
	}
	for range 2 * leastSeconds {
		second(100, 0)
	}
	begin := w.at
	for i := range 12 {
		if packets := uint64(24_000); i == 5 || i == 6 {
			second(100, 0) // the attack pauses
		} else {
			second(packets, 500)
		}
	}
	end := w.at
	for range 10 {
		second(100, 5)
	}
	if w.now != nil || len(told) == 0 || !strings.Contains(told[len(told)-1].Text, "over after 12s") {
		t.Fatalf("told %+v", told)
	}
	r, err := w.store.Report(told[0].Data.Attack.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Started.Equal(begin) || !r.Ended.Equal(end) || r.Active != 10 || r.Dropped.Packets != 240_000 {
		t.Errorf("from %v to %v, want %v to %v; %v seconds, dropped %v", r.Started, r.Ended, begin, end, r.Active, r.Dropped)
	}
	if s := r.Samples.Sources; len(s) != 1 || s[0].Packets < 450 || s[0].Packets > 520 {
		t.Errorf("sources: %+v, want 500 samples of a second", s)
	}
	var page strings.Builder
	if err := r.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "after 12s") {
		t.Errorf("the page: %v\n%s", err, page.String())
	}
	if s := r.Summary(); s.Lasted() != "12s" {
		t.Errorf("the list: %s", s.Lasted())
	}
}

// TestTurnsWithoutPackets makes the daemon report suggested rules. Every user of this host may read an event, so the event must not contain data of
// packets.
func TestTurnsWithoutPackets(t *testing.T) {
	var told []Event
	w := New(operate.Host{}, Store{t.TempDir()}, func(e Event) { told = append(told, e) })
	w.at = time.Now()
	w.before = &control.Status{}
	w.now = newCollecting(Report{ID: "20260102-030405", Started: w.at}, nil)
	for i := range 2 * leastPassed {
		spec, err := packet.Parse(fmt.Sprintf("udp 198.51.100.7:53 > 192.0.2.1:%d len=468 payload=0x123481800001dead", 4000+i))
		if err != nil {
			t.Fatal(err)
		}
		frame := spec.Frame()
		w.sample(sample.Sample{Time: w.at.Add(-searchSpan / 2), Device: "fw0", Length: len(frame), Frame: frame, Verdict: "pass"})
	}
	w.search()
	if len(told) != 1 || told[0].Err != nil {
		t.Fatalf("told %+v", told)
	}
	text, err := json.Marshal(told[0])
	if err != nil || !strings.Contains(string(text), `"rules":`+fmt.Sprint(len(w.now.report.Suggestion.Rules))) {
		t.Errorf("%s, %v", text, err)
	}
	for _, bad := range []string{"198.51.100", "udp/53", "payload", "dead", "then:"} {
		if strings.Contains(string(text), bad) {
			t.Errorf("the event has %s: %s", bad, text)
		}
	}
}

// TestForeignDirectory puts files and links of other users in the way of a report. None of them may be written, followed or read.
func TestForeignDirectory(t *testing.T) {
	testutil.RequireRoot(t)
	top := t.TempDir()
	victim := filepath.Join(top, "victim")
	r := &Report{ID: "20260102-030405"}
	s := Store{filepath.Join(top, "attacks")}
	if err := errors.Join(os.WriteFile(victim, []byte("whole"), 0o600), s.save(r, nil)); err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(s.dir, r.ID+reportFile)
	for i, put := range []func(string, string) error{os.Symlink, os.Link} {
		if err := errors.Join(put(victim, filepath.Join(s.dir, ".floodwall-"+fmt.Sprint(i))), os.Remove(report), put(victim, report), s.save(r, nil)); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(victim); string(text) != "whole" {
			t.Errorf("another file was written to: %.20q, %v", text, err)
		}
	}
	refused := func(why string, s Store) {
		t.Helper()
		_, read := s.Report(r.ID)
		_, open := s.Capture(r.ID)
		for _, err := range []error{s.save(r, nil), read, open} {
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("want an error with %q, got %v", why, err)
			}
		}
	}
	link := filepath.Join(top, "link")
	if err := os.Symlink(s.dir, link); err != nil {
		t.Fatal(err)
	}
	refused("can be written by others", Store{link})
	if err := os.Chown(s.dir, 12345, -1); err != nil {
		t.Fatal(err)
	}
	refused("belongs to user 12345", s)
	if err := errors.Join(os.Chown(s.dir, 0, -1), os.Chmod(s.dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	refused("can be written by others", s)
}
