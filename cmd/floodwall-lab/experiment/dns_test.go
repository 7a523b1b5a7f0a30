// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"

	mdns "github.com/miekg/dns"
)

func TestParseAnswers(t *testing.T) {
	sent, latency, err := parseAnswers(`DNS Performance Testing Tool
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
	if err != nil || sent != 5 || !cmp.Equal(want, latency) {
		t.Errorf("%d sent, %v, %v; want 5 sent and %v", sent, latency, err, want)
	}
	if half, most := percentile(latency, 0.5), percentile(latency, 0.99); half != want[1] || most != want[2] {
		t.Errorf("half within %v, 99%% within %v; want %v and %v", half, most, want[1], want[2])
	}
	if none := percentile(nil, 0.5); none != 0 {
		t.Errorf("half of no answers within %v", none)
	}
	if _, _, err := parseAnswers("> NOERROR h0.bench.example A soon\n"); err == nil || !strings.Contains(err.Error(), "soon") {
		t.Errorf("a line without seconds: %v", err)
	}
}

// TestQuery decodes the attacker's query with another implementation.
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

// TestZone parses the zone with another implementation, and looks up the names of the queries.
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

// dnsVisitOf returns ten seconds in which this number of 100 queries was answered, with this number of truncated answers. The parameter others is the
// number of bytes to other hosts for 1,000 bytes of an attacker; 0: no attacker.
func dnsVisitOf(answered, truncated int, others uint64) rig.Reading {
	read := dnsReading(100, make([]time.Duration, answered), uint64(truncated), 10*time.Second)
	if others > 0 {
		arrivals{othersBytes: others}.add(read, 10, 100, 10*time.Second)
	}
	return read
}

func TestDNSBars(t *testing.T) {
	s := &rig.Session{Options: rig.Options{Rounds: 3, Phase: 10 * time.Second}, Outcome: &report.Outcome{Name: "dns"}}
	table := dnsTable(&rig.Builder{Session: s}, "")
	for name, rounds := range map[string][]rig.Reading{
		"quiet/floodwall": {dnsVisitOf(100, 0, 0)}, "random/nothing": {dnsVisitOf(50, 0, 30_000)},
		"random/floodwall": {dnsVisitOf(100, 2, 1000), dnsVisitOf(99, 0, 999), dnsVisitOf(98, 0, 1001)},
		"victim/floodwall": {dnsVisitOf(99, 1, 1001)},
	} {
		table.Find(name).Rounds = rounds
	}
	table.Find("victim/nothing").Missing = "unbound is not installed (apt install unbound)"
	table.Publish(s.Outcome)
	var got []string
	for _, bar := range s.Outcome.Bars {
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
	rows := map[string]string{}
	for _, row := range s.Outcome.Tables[0].Rows {
		rows[row[0]] = strings.Join(row[1:], "|")
	}
	for label, want := range map[string]string{
		"2 Mpps of random sources: unbound":           "50.00%|50.00% .. 50.00%|5|0.000 ms|0.000 ms|0|0|0|0.0|0.0|30.00|",
		"20,000/s of the sources of one /24: unbound": "|||||||||||unbound is not installed (apt install unbound)",
	} {
		if rows[label] != want {
			t.Errorf("row %s:\n%s\nwant\n%s", label, rows[label], want)
		}
	}
}

// TestPolicy checks that the measured service is the same as in the guide.
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
