package experiment

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"

	mdns "github.com/miekg/dns"
)

func TestParseAnswers(t *testing.T) {
	a, err := parseAnswers(`DNS Performance Testing Tool
> NOERROR h0.bench.example A 0.000297
> SERVFAIL h1.bench.example A 0.000001
> NOERROR h2.bench.example A 0.000120
> T h3.bench.example A
> NOERROR h4.bench.example A 1.500000

Statistics:

  Queries sent:         5
  Queries completed:    4 (80.00%)
`)
	want := []time.Duration{120 * time.Microsecond, 297 * time.Microsecond, 1500 * time.Millisecond}
	if err != nil || a.sent != 5 || !cmp.Equal(want, a.latency) {
		t.Errorf("%+v, %v; want 5 sent and %v", a, err, want)
	}
	if half, most := a.percentile(0.5), a.percentile(0.99); half != want[1] || most != want[2] {
		t.Errorf("half within %v, 99%% within %v; want %v and %v", half, most, want[1], want[2])
	}
	if none := (&answers{}).percentile(0.5); none != 0 {
		t.Errorf("half of no answers within %v", none)
	}
	if _, err := parseAnswers("> NOERROR h0.bench.example A soon\n"); err == nil || !strings.Contains(err.Error(), "soon") {
		t.Errorf("a line without seconds: %v", err)
	}
}

// TestQuery has another decoder read the attacker's query.
func TestQuery(t *testing.T) {
	var m mdns.Msg
	if err := m.Unpack(queryFor(bigName, typeANY)); err != nil {
		t.Fatal(err)
	}
	want := mdns.Question{Name: bigName + ".", Qtype: mdns.TypeANY, Qclass: mdns.ClassINET}
	options := m.IsEdns0()
	if len(m.Question) != 1 || m.Question[0] != want || !m.RecursionDesired || m.Response || options == nil || options.UDPSize() != 4096 {
		t.Errorf("the query is\n%v", &m)
	}
}

// TestZone has another parser read the zone, and looks for what is asked for.
func TestZone(t *testing.T) {
	count := map[uint16]int{}
	zone := mdns.NewZoneParser(strings.NewReader(zoneText()), "", "zone")
	for r, ok := zone.Next(); ok; r, ok = zone.Next() {
		count[r.Header().Rrtype]++
	}
	if err := zone.Err(); err != nil {
		t.Fatal(err)
	}
	want := map[uint16]int{mdns.TypeSOA: 1, mdns.TypeNS: 1, mdns.TypeA: dnsNames + 1, mdns.TypeTXT: bigTexts}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("records by type (-want +got):\n%s", diff)
	}
}

// dnsVisitOf is a visit of ten seconds in which so many of 100 queries were answered, some of them truncated, and so
// much went to others for 1,000 bytes of the attacker.
func dnsVisitOf(answered, truncated int, others uint64) *dnsVisit {
	v := &dnsVisit{time: 10 * time.Second}
	v.sent, v.truncated, v.othersBytes = 100, uint64(truncated), others
	v.latency = make([]time.Duration, answered)
	v.attack = attack{flood: 10, bytes: 1000, took: 10 * time.Second}
	return v
}

func TestDNSBars(t *testing.T) {
	s := &rig.Session{Options: rig.Options{Rounds: 3, Phase: 10 * time.Second}, Outcome: &report.Outcome{Name: "dns"}}
	b := &dnsBuilder{Builder: rig.Builder{Session: s}}
	guarded, bare := guard{name: "floodwall", label: "guarded", policy: dnsPolicy}, guard{name: "nothing", label: "bare"}
	b.cases = []*dnsTestCase{
		{guard: guarded, flood: noFlood, visits: []*dnsVisit{dnsVisitOf(100, 0, 0)}},
		{guard: bare, flood: random, visits: []*dnsVisit{dnsVisitOf(50, 0, 30_000)}},
		{guard: guarded, flood: random, visits: []*dnsVisit{dnsVisitOf(100, 2, 1000), dnsVisitOf(99, 0, 999), dnsVisitOf(98, 0, 1001)}},
		{guard: guarded, flood: oneNet, visits: []*dnsVisit{dnsVisitOf(99, 1, 1001)}},
		{guard: bare, flood: oneNet, missing: "unbound is not installed (apt install unbound)"},
	}
	b.publish()
	var got []string
	for _, bar := range b.Outcome.Bars {
		got = append(got, bar.Name+" "+bar.String())
	}
	want := []string{
		"dns/quiet/floodwall answered >= 0.99 met",
		"dns/random/floodwall answered >= 0.99 MISSED", "dns/random/floodwall amplification <= 1.00 met",
		"dns/victim/floodwall answered >= 0.99 MISSED", "dns/victim/floodwall amplification <= 1.00 MISSED",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
	table := b.Outcome.Tables[0]
	for i, want := range map[int]string{
		1: "2 Mpps of random sources: bare|50.00%|50.00% .. 50.00%||5|0.000 ms|0.000 ms|0|0|0|0.0|0.0|30.00||",
		4: "20,000/s of the sources of one /24: bare||||||||||||||unbound is not installed (apt install unbound)",
	} {
		if got := strings.Join(table.Rows[i], "|"); got != want {
			t.Errorf("row %d:\n%s\nwant\n%s", i, got, want)
		}
	}
}

// TestPolicy has the service that is measured be that of the guide.
func TestPolicy(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/guides/open-resolver.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), "  - "+service+"\n") {
		t.Errorf("the guide has no service %s", service)
	}
}

func TestWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int{0: 1, 300 * time.Millisecond: 1, 1600 * time.Millisecond: 2, 10 * time.Second: 10} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("%v: %d s, want %d", d, got, want)
		}
	}
}
