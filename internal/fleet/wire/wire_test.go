package wire

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/floodwall/floodwall/internal/fleet/merge"
)

var samples = []Said{
	{netip.MustParsePrefix("198.51.100.7/32"), merge.Statement{Seq: 1795323000000001, Until: 1795323600000, Reason: "above the limit of rule web"}},
	{netip.MustParsePrefix("2001:db8:1::/48"), merge.Statement{Seq: 1795323000000002, Sig: bytes.Repeat([]byte{7}, 64)}},
	{netip.MustParsePrefix("0.0.0.0/0"), merge.Statement{Seq: 3, Until: 4}},
}

// decoders read a message, and write it again.
var decoders = map[string]func([]byte) ([]byte, error){
	"offer":  func(b []byte) ([]byte, error) { m, err := ParseOffer(b, "a"); return m.Bytes(), err },
	"answer": func(b []byte) ([]byte, error) { m, err := ParseAnswer(b); return m.Bytes(), err },
	"batch":  func(b []byte) ([]byte, error) { m, err := ParseBatch(b); return m.Bytes(), err },
	"record": func(b []byte) ([]byte, error) { m, err := ParseRecord(b); return Record(m), err },
	"pulse":  func(b []byte) ([]byte, error) { m, err := ParsePulse(b); return m.Bytes(), err },
	"after":  func(b []byte) ([]byte, error) { m, err := ParseAfter(b); return m.Bytes(), err },
}

func sampleMessages() map[string][]byte {
	r := merge.Record{Prefix: samples[0].Prefix}
	for _, s := range samples {
		s.Origin = "node-1"
		r.Statements = append(r.Statements, s.Statement)
	}
	r.Statements[1].Origin = merge.Controller
	return map[string][]byte{
		"offer":  Offer(samples).Bytes(),
		"answer": Answer{time.UnixMilli(1795323000000), []Outcome{Taken, Enough, Refused, Later}, "it is wide"}.Bytes(),
		"batch":  Batch{time.UnixMilli(1795323000000), 2, 7, []Stored{{5, r}, {9, merge.Record{Prefix: samples[1].Prefix}}}}.Bytes(),
		"record": Record(r),
		"pulse":  Pulse{time.UnixMilli(1795323000000), 3, 12}.Bytes(),
		"after":  After(300).Bytes(),
	}
}

// TestMessages reads what was written, and no message that is cut short or has more behind it.
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

// TestBadRecord has a record that is too large, and one that names nobody, between two others. Those are read.
func TestBadRecord(t *testing.T) {
	good := merge.Record{Prefix: samples[0].Prefix, Statements: []merge.Statement{{Origin: "a", Seq: 1}}}
	large, nobody := merge.Record{Prefix: samples[1].Prefix}, merge.Record{Prefix: samples[1].Prefix, Statements: []merge.Statement{{Origin: "A"}}}
	for i := range 200 {
		large.Statements = append(large.Statements, merge.Statement{Origin: "a", Seq: uint64(i)})
	}
	b, err := ParseBatch(Batch{Now: time.UnixMilli(1), Records: []Stored{{1, good}, {2, large}, {3, nobody}, {4, good}}}.Bytes())
	if err != nil || len(b.Records) != 2 || b.Records[0].Number != 1 || b.Records[1].Number != 4 {
		t.Errorf("%v, %d records: %v", err, len(b.Records), b.Records)
	}
}

// TestSubjects has names that would be other subjects.
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

// FuzzMessages reads any bytes as each kind of message. What is taken is written and read again as the same.
func FuzzMessages(f *testing.F) {
	for _, message := range sampleMessages() {
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for kind, decode := range decoders {
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
