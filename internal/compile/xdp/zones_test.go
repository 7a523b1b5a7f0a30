// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// Bursts of the limits of zones in these tests. The rates are so low that nothing more passes during a test.
const (
	negativeNames = 20
	newNames      = 40
)

// zoned is a loaded program. It truncates the answers to queries of unverified clients to port 53 for unanswered names below flooded zones. It passes
// all other packets.
type zoned struct {
	*datapath.Program
	program *ir.Program
	zones   *ir.Zones
}

func zonedProgram() *ir.Program {
	slow := func(burst uint64) ir.Limit {
		return ir.Limit{Rule: "dns", Rate: 100, Per: 24 * time.Hour, Burst: burst, Src: &ir.Prefixes{V4: 32, V6: 128}, Max: 1 << 14}
	}
	p := guarding(ir.Guard{Verify: time.Hour, Names: &ir.Names{Flooded: 0, GoOn: 1, New: 2}})
	p.Guards[0].Out = -1
	p.Limits = []ir.Limit{slow(negativeNames), slow(negativeNames), slow(newNames)}
	p.Default = ir.Pass
	is := func(f packet.Field, first, last uint32) ir.Match {
		return ir.Match{Field: f, Values: []ir.Range{{First: first, Last: last}}}
	}
	p.Rules = []ir.Rule{{Name: "names", Verdict: ir.Truncate, Unanswered: true, Match: []ir.Match{
		is(packet.DPort, udp53, udp53), is(packet.DNS, 0, packet.DNSResponse-1), is(packet.Verified, 0, 0),
	}}}
	return p
}

func loadZoned(t testing.TB) *zoned {
	t.Helper()
	p := zonedProgram()
	x, err := xdpgen.Generate(p, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	testutil.RequireRoot(t)
	z := &zoned{Program: (&subject.Subject{Program: p}).Load(t, x), program: p}
	z.forget(t)
	return z
}

// forget clears everything that the program and the model have learned.
func (z *zoned) forget(t testing.TB) {
	t.Helper()
	memory, release, err := z.Memory(image.AnsweredNames, image.FloodedZones, image.ZoneTimes, image.Limits)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	clear(memory[image.AnsweredNames])
	clear(memory[image.FloodedZones])
	clear(memory[image.ZoneTimes][image.ZoneKeySize:])
	clear(memory[image.Limits])
	z.zones = ir.NewZones(z.program, z.program.Guards[0].Names)
}

// leaves sends a response to a client, through the program and through the model.
func (z *zoned) leaves(t testing.TB, client string, message []byte) {
	t.Helper()
	frame := responseFrame(t, client, message)
	z.leave(t, frame, len(frame)-(8+len(message)))
}

// leave sends a frame out. Its UDP header begins at l4.
func (z *zoned) leave(t testing.TB, frame []byte, l4 int) {
	t.Helper()
	const next = 0xffffffff // TCX_NEXT
	r, ok := packet.ReadResponse(frame[l4:])
	if ok && r.Labels > 3 && r.RCode > 0 && (r.ZoneDepth == packet.NoZone || r.Answers > 0) {
		return // the program chooses at random which parent domains are charged
	}
	if got, _, err := z.Egress().Test(frame); err != nil || got != next {
		t.Fatalf("what leaves gets %d, %v", got, err)
	}
	if ok {
		z.zones.Learn(r, false, clock(t, unix.CLOCK_MONOTONIC))
	}
}

// truncates asks the program for its decision about a query. The decision must be that of Eval. It reports whether the answer is truncated.
func (z *zoned) truncates(t testing.TB, frame []byte) bool {
	t.Helper()
	a, err := z.AskAt(datapath.Question{Frame: frame})
	if err != nil {
		t.Fatal(err)
	}
	pkt := packet.Decode(frame)
	now := clock(t, unix.CLOCK_MONOTONIC)
	want, _ := z.program.Eval(&pkt, ir.World{Unanswered: func(pkt *packet.Packet) bool { return z.zones.Unanswered(pkt, now) }})
	if ir.Verdict(a.Verdict) != want {
		t.Fatalf("a query for %q, type %d, gets %s, want %s", pkt.Query.Name(), pkt.Value[packet.DNS], ir.Verdict(a.Verdict), want)
	}
	return want == ir.Truncate
}

// responseFrame returns the frame of an outgoing response.
func responseFrame(t testing.TB, client string, message []byte) []byte {
	t.Helper()
	frame := subject.FramesOf(t, fmt.Sprintf("udp %s > %s len=%d", address(server(client), 53), address(client, 4000), headersOf(client)+len(message)))[0].Frame
	l4 := 14 + headersOf(client) - 8
	frame = frame[:l4+8]
	binary.BigEndian.PutUint16(frame[l4+4:], uint16(8+len(message)))
	return append(frame, message...)
}

// headersOf returns the length of the IP and UDP headers of a client's packets.
func headersOf(client string) int {
	if strings.Contains(client, ":") {
		return 48
	}
	return 28
}

// response returns a message as a resolver sends it, with a SOA record of the zone unless zone is "".
func response(t testing.TB, name string, qtype uint16, rcode int, answers []dns.RR, zone string) []byte {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), qtype)
	m.Response, m.Rcode, m.Answer, m.Compress = true, rcode, answers, true
	if zone != "" {
		m.Ns = []dns.RR{soa(zone)}
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func soa(zone string) dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: dns.Fqdn(zone), Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 60}, Ns: "ns.example.", Mbox: "host.example.",
	}
}

func addressRecord(name string) []dns.RR {
	return []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: dns.Fqdn(name), Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(192, 0, 2, 7)}}
}

// ask returns the frame of a query.
func ask(t testing.TB, client, name, more string) []byte {
	t.Helper()
	return subject.FramesOf(t, fmt.Sprintf("udp %s > %s dns=%s,%s%s", address(client, 4000), address(server(client), 53), "A", name, more))[0].Frame
}

// floods floods a zone: the server sends more responses for nonexistent names of the zone than the limit allows.
func (z *zoned) floods(t testing.TB, zone string) {
	t.Helper()
	for i := range negativeNames + 1 {
		name := fmt.Sprintf("x%d.%s", i, zone)
		z.leaves(t, "198.51.100.7", response(t, name, dns.TypeA, dns.RcodeNameError, nil, zone))
	}
}

// TestZoneFlood floods a zone. Queries for names below the zone must get truncated answers. Names that have been answered are exempt: in any letter
// case, for any type, with and without EDNS, and for clients of both families. Other zones, the zone itself, and verified clients must not be
// affected.
func TestZoneFlood(t *testing.T) {
	z := loadZoned(t)
	z.leaves(t, "198.51.100.7", response(t, "wWw.Example.org", dns.TypeA, dns.RcodeSuccess, addressRecord("wWw.Example.org"), ""))
	if z.truncates(t, ask(t, "198.51.100.9", "other.example.org", "")) {
		t.Error("a query is truncated while no zone is flooded")
	}
	z.floods(t, "example.org")
	for _, client := range []string{"198.51.100.9", "2001:db8::9"} {
		for name, want := range map[string]bool{
			"other.example.org": true, "a.b.c.example.org": true, "example.org": false, "org": false, ".": false,
			"www.example.org": false, "WWW.EXAMPLE.ORG": false, "wWw.eXaMpLe.OrG": false, "a.www.example.org": true, "www.example.com": false, "www.badexample.org": false,
		} {
			for _, more := range []string{"", ",edns:1232", ",edns:1232,do"} {
				if got := z.truncates(t, ask(t, client, name, more)); got != want {
					t.Errorf("%s asks for %q%s: truncated is %t", client, name, more, got)
				}
			}
		}
	}
	for _, qtype := range []string{"AAAA", "MX", "HTTPS", "PTR", "ANY"} {
		frames := subject.FramesOf(t, "udp 198.51.100.9:4000 > 192.0.2.53:53 dns="+qtype+",www.example.org\nudp 198.51.100.9:4000 > 192.0.2.53:53 dns="+qtype+",no.example.org")
		if z.truncates(t, frames[0].Frame) || !z.truncates(t, frames[1].Frame) {
			t.Errorf("type %s is treated otherwise than A", qtype)
		}
	}
	z.Egress().Test(subject.FramesOf(t, "tcp 192.0.2.53:53 > 198.51.100.9:4000 A len=200")[0].Frame)
	a, err := z.AskAt(datapath.Question{Frame: ask(t, "198.51.100.9", "no.example.org", "")})
	if err != nil || ir.Verdict(a.Verdict) != ir.Pass {
		t.Errorf("a client that was answered over TCP gets %s, %v", ir.Verdict(a.Verdict), err)
	}
}

// TestZoneEnds checks how long a zone counts as flooded. It does for ten seconds, or longer if further queries arrive whose answers are truncated.
func TestZoneEnds(t *testing.T) {
	z := loadZoned(t)
	z.floods(t, "example.org")
	frame := ask(t, "198.51.100.9", "no.example.org", "")
	at := func(when time.Duration, act bool) bool {
		t.Helper()
		a, err := z.AskAt(datapath.Question{Frame: frame, Now: clock(t, unix.CLOCK_MONOTONIC) + when, Charge: act})
		if err != nil {
			t.Fatal(err)
		}
		return ir.Verdict(a.Verdict) == ir.Truncate
	}
	if !at(9*time.Second, false) || at(11*time.Second, false) {
		t.Fatal("a zone is not flooded for ten seconds")
	}
	for range negativeNames {
		at(5*time.Second, true)
	}
	if at(11*time.Second, false) {
		t.Error("it goes on with as many queries as the limit allows")
	}
	for range 2 {
		at(5*time.Second, true)
	}
	if !at(14*time.Second, false) || at(16*time.Second, false) {
		t.Error("it does not go on for ten seconds after the queries exceeded the limit")
	}
}

// TestNegativeResponses sends floods of responses that count and of responses that do not count. Each flood is for a zone of its own.
func TestNegativeResponses(t *testing.T) {
	z := loadZoned(t)
	signature := &dns.RRSIG{Hdr: dns.RR_Header{Name: "signed.example.", Rrtype: dns.TypeRRSIG, Class: dns.ClassINET}, SignerName: "signed.example.", Signature: "AAAA"}
	for i, c := range []struct {
		name    string
		message func(name, zone string) []byte
		flooded bool
	}{
		{"NXDOMAIN", func(name, zone string) []byte { return response(t, name, dns.TypeA, dns.RcodeNameError, nil, zone) }, true},
		{"NXDOMAIN without SOA", func(name, zone string) []byte { return response(t, name, dns.TypeA, dns.RcodeNameError, nil, "") }, true},
		{"SERVFAIL", func(name, zone string) []byte { return response(t, name, dns.TypeA, dns.RcodeServerFailure, nil, "") }, true},
		{"NODATA", func(name, zone string) []byte { return response(t, name, dns.TypeMX, dns.RcodeSuccess, nil, zone) }, true},
		{"NODATA for AAAA", func(name, zone string) []byte { return response(t, name, dns.TypeAAAA, dns.RcodeSuccess, nil, zone) }, false},
		{"NODATA for HTTPS", func(name, zone string) []byte { return response(t, name, dns.TypeHTTPS, dns.RcodeSuccess, nil, zone) }, false},
		{"NXDOMAIN for AAAA", func(name, zone string) []byte { return response(t, name, dns.TypeAAAA, dns.RcodeNameError, nil, zone) }, true},
		{"NODATA without SOA", func(name, zone string) []byte { return response(t, name, dns.TypeA, dns.RcodeSuccess, nil, "") }, false},
		{"a referral", func(name, zone string) []byte { return referral(t, name, zone) }, false},
		{"the zone of the root", func(name, zone string) []byte { return response(t, name, dns.TypeA, dns.RcodeNameError, nil, ".") }, false},
		{"REFUSED", func(name, zone string) []byte { return response(t, name, dns.TypeA, dns.RcodeRefused, nil, "") }, false},
		{"an answer", func(name, zone string) []byte {
			return response(t, name, dns.TypeA, dns.RcodeSuccess, addressRecord(name), "")
		}, false},
		{"the zone of a top-level domain", func(name, zone string) []byte {
			return response(t, name, dns.TypeA, dns.RcodeNameError, nil, "example")
		}, false},
		{"SOA behind a signature, not compressed", func(name, zone string) []byte {
			m := new(dns.Msg)
			m.SetRcode(new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA), dns.RcodeNameError)
			m.Ns = []dns.RR{signature, soa(zone)}
			b, err := m.Pack()
			if err != nil {
				t.Fatal(err)
			}
			return b
		}, true},
	} {
		zone := fmt.Sprintf("zone%d.example", i)
		for j := range negativeNames + 1 {
			z.leaves(t, "2001:db8::7", c.message(fmt.Sprintf("x%d.%s", j, zone), zone))
		}
		if got := z.truncates(t, ask(t, "198.51.100.9", "no."+zone, "")); got != c.flooded {
			t.Errorf("%s: flooded is %t", c.name, got)
		}
	}
	for range 3 * negativeNames { // to a verified client, such as a mail server that queries a blocklist
		z.Egress().Test(subject.FramesOf(t, "tcp 192.0.2.53:53 > 198.51.100.8:4000 A len=200")[0].Frame)
		z.Egress().Test(responseFrame(t, "198.51.100.8", response(t, fmt.Sprintf("x%d.list.example", rand.Int()), dns.TypeA, dns.RcodeNameError, nil, "list.example")))
	}
	if z.truncates(t, ask(t, "198.51.100.9", "no.list.example", "")) {
		t.Error("responses to a verified client have a zone flooded")
	}
}

// TestServFailAbove sends failures for names in which all labels before the zone are random. The zone must still count as flooded.
func TestServFailAbove(t *testing.T) {
	z := loadZoned(t)
	for range 64 * negativeNames {
		name := fmt.Sprintf("a%d.b%d.c%d.d%d.e%d.example.org", rand.Int(), rand.Int(), rand.Int(), rand.Int(), rand.Int())
		z.Egress().Test(responseFrame(t, "198.51.100.7", response(t, name, dns.TypeA, dns.RcodeServerFailure, nil, "")))
	}
	a, err := z.AskAt(datapath.Question{Frame: ask(t, "198.51.100.9", "f.g.h.i.j.example.org", "")})
	if err != nil || ir.Verdict(a.Verdict) != ir.Truncate {
		t.Errorf("a name of a zone that fails gets %s, %v", ir.Verdict(a.Verdict), err)
	}
}

// TestWildcard plays an attacker who queries many names in a domain in which all names exist. The names of other clients must stay stored. Only some
// of the attacker's names may be stored.
func TestWildcard(t *testing.T) {
	z := loadZoned(t)
	names := []string{"www.example.org", "mail.example.org"}
	for _, name := range names {
		z.leaves(t, "198.51.100.7", response(t, name, dns.TypeA, dns.RcodeSuccess, addressRecord(name), ""))
	}
	for i := range 50 * newNames {
		name := fmt.Sprintf("x%d.%d.wild.example", i, i%7)
		z.leaves(t, "198.51.100.8", response(t, name, dns.TypeA, dns.RcodeSuccess, addressRecord(name), ""))
	}
	z.floods(t, "example.org")
	z.floods(t, "wild.example")
	for _, name := range names {
		if z.truncates(t, ask(t, "198.51.100.9", name, "")) {
			t.Errorf("%s is not known any more", name)
		}
	}
	known := 0
	for i := range 50 * newNames {
		if !z.truncates(t, ask(t, "198.51.100.9", fmt.Sprintf("x%d.%d.wild.example", i, i%7), "")) {
			known++
		}
	}
	if known != newNames {
		t.Errorf("%d names of the domain are known, want %d", known, newNames)
	}
}

// TestZonesRandom sends random and malformed responses, and random queries, through the program. The program must decide like Eval with the state of
// ir.Zones. FLOODWALL_LONG=1 tests ten million frames.
func TestZonesRandom(t *testing.T) {
	r, chunks := rand.New(rand.NewPCG(1, 2)), 5
	if testutil.Long() {
		r, _ = subject.Seeded(t)
		chunks = 1000
	}
	z, truncated, all := loadZoned(t), 0, 0
	for range chunks {
		z.forget(t)
		began := time.Now()
		for range 10_000 {
			client := []string{"198.51.100.7", "2001:db8::7"}[r.IntN(2)]
			if r.IntN(2) == 0 {
				frame := randomResponseTo(t, r, client)
				z.leave(t, frame, 14+headersOf(client)-8)
				continue
			}
			all++
			frame := ask(t, client, randomName(r), "")
			if r.IntN(8) == 0 {
				frame[min(14+headersOf(client)-8+20+r.IntN(40), len(frame)-1)] = byte(r.Uint32())
			}
			if z.truncates(t, frame) {
				truncated++
			}
			if time.Since(began) > 8*time.Second { // because zones are flooded for ten seconds
				break
			}
		}
	}
	if truncated < all/20 || truncated > all*19/20 {
		t.Errorf("of %d queries %d are truncated: the test says little", all, truncated)
	}
}

// randomName returns a name below one of a few zones. Few of its labels are random.
func randomName(r *rand.Rand) string {
	name := []string{"example.org", "a.example.org", "example", "x.y.example", "z.x.y.example"}[r.IntN(5)]
	for range r.IntN(3) {
		name = fmt.Sprintf("%c%d.%s", "nN"[r.IntN(2)], r.IntN(30), name)
	}
	if r.IntN(50) == 0 {
		name = strings.Repeat("l.", r.IntN(100)) + name
	}
	return name
}

// randomResponseTo returns a frame with a response. One in four is malformed.
func randomResponseTo(t testing.TB, r *rand.Rand, client string) []byte {
	t.Helper()
	name := randomName(r)
	labels := strings.Split(name, ".")
	zone := strings.Join(labels[r.IntN(len(labels)):], ".")
	if r.IntN(16) == 0 {
		zone = "."
	}
	rcode, qtype := []int{0, 0, 0, 3, 3, 3, 5, 2}[r.IntN(8)], []uint16{dns.TypeA, dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS}[r.IntN(4)]
	var answers []dns.RR
	if rcode == 0 && r.IntN(4) > 0 {
		answers = addressRecord(name)
		zone = ""
	}
	if rcode == 2 || r.IntN(8) == 0 {
		zone = ""
	}
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), qtype)
	m.Response, m.Rcode, m.Answer, m.Compress = true, rcode, answers, r.IntN(2) == 0
	for zone != "" && len(m.Ns) < 12 && r.IntN(3) == 0 {
		m.Ns = append(m.Ns, &dns.NS{Hdr: dns.RR_Header{Name: dns.Fqdn(zone), Rrtype: dns.TypeNS, Class: dns.ClassINET}, Ns: dns.Fqdn(name)})
	}
	if zone != "" && (len(m.Ns) == 0 || r.IntN(2) == 0) {
		m.Ns = append(m.Ns, soa(zone))
	}
	message, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if r.IntN(4) == 0 {
		broken := message[12:]
		for range 1 + r.IntN(3) {
			broken[r.IntN(len(broken))] = []byte{0, 0xc0, byte(r.Uint32()), byte(r.Uint32())}[r.IntN(4)]
		}
		if r.IntN(2) == 0 {
			message = message[:r.IntN(len(message)+1)]
		}
	}
	frame := responseFrame(t, client, message)
	if r.IntN(16) == 0 {
		binary.BigEndian.PutUint16(frame[14+headersOf(client)-8+4:], uint16(r.IntN(2*len(message)+16)))
	}
	return frame
}
