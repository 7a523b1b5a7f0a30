// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var samples = []Said{
	{netip.MustParsePrefix("198.51.100.7/32"), Statement{Seq: 1795323000000001, Until: 1795323600000, Reason: "above the limit of rule web"}},
	{netip.MustParsePrefix("2001:db8:1::/48"), Statement{Seq: 1795323000000002, Sig: bytes.Repeat([]byte{7}, 64)}},
	{netip.MustParsePrefix("0.0.0.0/0"), Statement{Seq: 3, Until: 4}},
}

var sampleSummary = Summary{
	Span: 10 * time.Second, Decided: [4]Amount{{Packets: 1000, Bytes: 64000}, {Packets: 2_000_000, Bytes: 128_000_000}},
	Attacks: []Attack{{Kind: "SYN flood", Service: "tcp/443", Started: 1795323000000, Packets: 200_000}, {Kind: "NTP amplification"}},
	OneIn:   1000, Missed: 3000,
	Talkers: []Talker{
		{Prefix: netip.MustParsePrefix("198.51.100.7/32"), Packets: 700_000, Error: 1000}, {Prefix: netip.MustParsePrefix("2001:db8::/64"), Packets: 3000, Error: 3000},
	},
}

func sampleView() *View {
	var b Board
	now := time.UnixMilli(1795323000000)
	b.Put("node-1", sampleSummary, now)
	b.Put("node-2", sampleSummary, now.Add(-time.Second))
	return b.View(now, ForNodes)
}

// decoders parse a message, and encode it again.
var decoders = map[string]func([]byte) ([]byte, error){
	"offer":   func(b []byte) ([]byte, error) { m, err := ParseOffer(b, "a"); return m.Bytes(), err },
	"answer":  func(b []byte) ([]byte, error) { m, err := ParseAnswer(b); return m.Bytes(), err },
	"batch":   func(b []byte) ([]byte, error) { m, err := ParseBatch(b); return m.Bytes(), err },
	"record":  func(b []byte) ([]byte, error) { m, err := ParseRecord(b); return EncodeRecord(m), err },
	"pulse":   func(b []byte) ([]byte, error) { m, err := ParsePulse(b); return m.Bytes(), err },
	"after":   func(b []byte) ([]byte, error) { m, err := ParseAfter(b); return m.Bytes(), err },
	"summary": func(b []byte) ([]byte, error) { m, err := ParseSummary(b); return EncodeSummary(&m), err },
	"view":    func(b []byte) ([]byte, error) { m, err := ParseView(b); return EncodeView(m), err },
}

// loose are decoders for which a part of a message can be another valid message.
var loose = map[string]func([]byte) ([]byte, error){
	"part":       func(b []byte) ([]byte, error) { m, err := ParsePart(b); return m.Bytes(), err },
	"state":      func(b []byte) ([]byte, error) { m, err := ParsePolicyState(b); return m.Bytes(), err },
	"invitation": func(b []byte) ([]byte, error) { m, err := ParseInvitation(string(b)); return []byte(m.Token()), err },
}

func looseMessages() map[string][]byte {
	sum := strings.Repeat("a1", 32)
	return map[string][]byte{
		"part": Part{sum, 3}.Bytes(), "state": PolicyState{Version: 8, Runs: 7, Content: sum, Phase: Failed, Problem: "cut off", Healthy: true}.Bytes(),
		"invitation": []byte(Invitation{"web-1", "secret", bytes.Repeat([]byte{7}, 32), []string{"tls://192.0.2.1:4222"}}.Token()),
	}
}

func sampleMessages() map[string][]byte {
	r := Record{Prefix: samples[0].Prefix}
	for _, s := range samples {
		s.Origin = "node-1"
		r.Statements = append(r.Statements, s.Statement)
	}
	r.Statements[1].Origin = Controller
	return map[string][]byte{
		"offer":   Offer(samples).Bytes(),
		"answer":  Answer{time.UnixMilli(1795323000000), []Outcome{Taken, Enough, Refused, Later}, "it is wide"}.Bytes(),
		"batch":   Batch{time.UnixMilli(1795323000000), 2, 7, []Stored{{5, r}, {9, Record{Prefix: samples[1].Prefix}}}}.Bytes(),
		"record":  EncodeRecord(r),
		"pulse":   Pulse{1 << 63, time.UnixMilli(1795323000000), 3, 12}.Bytes(),
		"after":   After(300).Bytes(),
		"summary": EncodeSummary(&sampleSummary),
		"view":    EncodeView(sampleView()),
	}
}

// TestMessages parses encoded messages. It must refuse each message that is truncated or has additional bytes.
func TestMessages(t *testing.T) {
	for kind, message := range sampleMessages() {
		again, err := decoders[kind](message)
		if err != nil || !bytes.Equal(again, message) {
			t.Errorf("%s: %v, is written again as %x, was %x", kind, err, again, message)
		}
		for n := range message {
			if _, err := decoders[kind](message[:n]); err == nil {
				t.Errorf("%s: the first %d of %d bytes are taken", kind, n, len(message))
			}
		}
		if _, err := decoders[kind](append(bytes.Clone(message), 0)); err == nil {
			t.Errorf("%s: a byte after it is taken", kind)
		}
	}
	o, err := ParseOffer(Offer(samples).Bytes(), "me")
	want := append(Offer{}, samples...)
	for i := range want {
		want[i].Origin = "me"
	}
	if diff := cmp.Diff(want, o, cmpopts.EquateComparable(netip.Prefix{})); diff != "" || err != nil {
		t.Errorf("an offer is another when it is read (-want +got): %v\n%s", err, diff)
	}
}

// TestBadRecord puts a record that is too large, and one with an invalid origin, between two valid records. The two valid records must be read.
func TestBadRecord(t *testing.T) {
	good := Record{Prefix: samples[0].Prefix, Statements: []Statement{{Origin: "a", Seq: 1}}}
	large, nobody := Record{Prefix: samples[1].Prefix}, Record{Prefix: samples[1].Prefix, Statements: []Statement{{Origin: "A"}}}
	for i := range 200 {
		large.Statements = append(large.Statements, Statement{Origin: "a", Seq: uint64(i)})
	}
	b, err := ParseBatch(Batch{Now: time.UnixMilli(1), Records: []Stored{{1, good}, {2, large}, {3, nobody}, {4, good}}}.Bytes())
	if err != nil || len(b.Records) != 2 || b.Records[0].Number != 1 || b.Records[1].Number != 4 {
		t.Errorf("%v, %d records: %v", err, len(b.Records), b.Records)
	}
}

// TestSubjects uses node names that would change the subject of a message. They must be refused.
func TestSubjects(t *testing.T) {
	for _, name := range []string{"", "a.b", "*", ">", "a b", "A", "-a", "a-", "@", "a\n"} {
		if CheckName(name) == nil {
			t.Errorf("a node may be named %q", name)
		}
		if _, err := NodeOf("fw.node." + name + ".ban"); err == nil {
			t.Errorf("subject of node %q is taken", name)
		}
	}
	for p, want := range map[string]string{"198.51.100.7/32": "fw.ban.4.c6336407.32", "2001:db8::/48": "fw.ban.6.20010db8000000000000000000000000.48"} {
		if got := BanSubject(netip.MustParsePrefix(p)); got != want {
			t.Errorf("%s is kept at %s, want %s", p, got, want)
		}
	}
}

// FuzzMessages parses any bytes as each kind of message. An accepted message must be the same after it is encoded and parsed again.
func FuzzMessages(f *testing.F) {
	for _, message := range sampleMessages() {
		f.Add(message)
	}
	all := maps.Clone(decoders)
	maps.Copy(all, loose)
	for kind, message := range looseMessages() {
		if again, err := loose[kind](message); err != nil || !bytes.Equal(again, message) {
			f.Errorf("%s: %v, is written again as %s, was %s", kind, err, again, message)
		}
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for kind, decode := range all {
			first, err := decode(b)
			if err != nil {
				continue
			}
			second, err := decode(first)
			if err != nil || !bytes.Equal(first, second) {
				t.Errorf("%s: %v: %x is written as %x and then as %x", kind, err, b, first, second)
			}
		}
	})
}

// TestSummaryRefused uses impossible summaries, and summaries with control characters for a terminal. None may be accepted.
func TestSummaryRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Summary){
		"no time":              func(s *Summary) { s.Span = 0 },
		"an hour":              func(s *Summary) { s.Span = time.Hour },
		"packets of no line":   func(s *Summary) { s.Decided[1].Packets = 1 << 60 },
		"packets in sum":       func(s *Summary) { s.Decided[0].Packets, s.Decided[1].Packets = 1e11, 1e11 },
		"bytes of no line":     func(s *Summary) { s.Decided[0].Bytes = 1<<64 - 1 },
		"an escape":            func(s *Summary) { s.Attacks[0].Kind = "\x1b[2J" },
		"an escape, service":   func(s *Summary) { s.Attacks[0].Service = "a\nb" },
		"a long service":       func(s *Summary) { s.Attacks[0].Service = string(bytes.Repeat([]byte("a"), 60)) },
		"no kind":              func(s *Summary) { s.Attacks[0].Kind = "" },
		"an attack twice":      func(s *Summary) { s.Attacks[1] = s.Attacks[0] },
		"an attack too large":  func(s *Summary) { s.Attacks[0].Packets = 1 << 50 },
		"many attacks":         func(s *Summary) { s.Attacks = make([]Attack, 9) },
		"all addresses":        func(s *Summary) { s.Talkers[0].Prefix = netip.MustParsePrefix("0.0.0.0/0") },
		"a host of IPv6":       func(s *Summary) { s.Talkers[1].Prefix = netip.MustParsePrefix("2001:db8::1/128") },
		"a talker twice":       func(s *Summary) { s.Talkers[1] = s.Talkers[0] },
		"more error than sent": func(s *Summary) { s.Talkers[0].Error = 700_001 },
		"a talker too large":   func(s *Summary) { s.Talkers[0].Packets = 1 << 60 },
		"others sent more":     func(s *Summary) { s.Missed = 3001 },
		"others, no talkers":   func(s *Summary) { s.Talkers, s.Missed = nil, 1<<60 },
		"no samples":           func(s *Summary) { s.OneIn = 0 },
		"many talkers":         func(s *Summary) { s.Talkers = make([]Talker, 17) },
	} {
		again, err := ParseSummary(EncodeSummary(&sampleSummary))
		if err != nil {
			t.Fatal(err)
		}
		spoil(&again)
		for i := range again.Talkers {
			if !again.Talkers[i].Prefix.IsValid() {
				again.Talkers[i].Prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32)
			}
		}
		if got, err := ParseSummary(EncodeSummary(&again)); err == nil {
			t.Errorf("%s: %+v is taken", name, got)
		}
	}
	if _, err := ParseSummary(append(EncodeSummary(&sampleSummary), make([]byte, MaxSummary)...)); err == nil {
		t.Error("a long message is taken")
	}
}
