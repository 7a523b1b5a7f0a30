// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// query returns the line of a DNS query for a name.
func query(name string) string { return dns4 + " dns=A," + name }

// TestEvalNames checks which queries match rules for names of the sets 0, 1 and 2.
func TestEvalNames(t *testing.T) {
	names := []NameSet{
		{Name: "bad", Names: []string{"evil.example", "x.test"}},
		{Names: []string{"com"}},
		{Names: []string{""}},
		{},
	}
	evil := []string{query("evil.example"), query("www.evil.example"), query("a.b.EVIL.Example"), query("x.test"), query(`\000.x.test`)}
	others := []string{query("."), query("example"), query("notevil.example"), query("evil.example.org"), query(`a\046evil.example`),
		query(`evil\046example`), query("test"), query("evi.lexample")}
	noQueries := []string{syn4, ping, dns4, dns4 + " dns=A,evil.example,response", dns4 + " dns=A,evil.example,class:3",
		query("evil.example") + " udplen=9", query("evil.example") + " frag=first", query("evil.example") + " frag=later"}
	for _, test := range []struct {
		name         string
		match        []NameMatch
		hits, misses [][]string
	}{
		{"a set", []NameMatch{{Sets: []int{0}}}, [][]string{evil}, [][]string{others, noQueries}},
		{"not a set", []NameMatch{{Sets: []int{0}, Not: true}}, [][]string{others, noQueries}, [][]string{evil}},
		{"two sets", []NameMatch{{Sets: []int{1, 0}}}, [][]string{evil, {query("com"), query("www.com")}}, [][]string{others, noQueries}},
		{"not two sets", []NameMatch{{Sets: []int{0, 1}, Not: true}}, [][]string{others, noQueries}, [][]string{evil, {query("a.com")}}},
		{"the root", []NameMatch{{Sets: []int{2}}}, [][]string{evil, others}, [][]string{noQueries}},
		{"all but a set", []NameMatch{{Sets: []int{2}}, {Sets: []int{0}, Not: true}}, [][]string{others}, [][]string{evil, noQueries}},
		{"no names", []NameMatch{{Sets: []int{3}}}, nil, [][]string{evil, others, noQueries}},
		{"no sets", []NameMatch{{}}, nil, [][]string{evil, others, noQueries}},
		{"not no sets", []NameMatch{{Not: true}}, [][]string{evil, others, noQueries}, nil},
	} {
		p := &Program{Default: Pass, Names: names, Rules: []Rule{{Name: "rule", Names: test.match, Verdict: Drop}}}
		for _, lines := range test.hits {
			expect(t, test.name, p, lines, Drop, "rule")
		}
		for _, lines := range test.misses {
			expect(t, test.name, p, lines, Pass, "default")
		}
	}
}

func text(s string, within uint16) Pattern { return Pattern{Text: []byte(s), Within: within} }

func noCase(s string) Pattern { return Pattern{Text: []byte(s), NoCase: true, Within: 256} }

func bytesAt(offset uint16, value, mask string) At {
	return At{Offset: offset, Value: []byte(value), Mask: []byte(mask)}
}

func inHeader(a At) At {
	a.Base = BaseL4
	return a
}

// TestEvalPayload tests packets that match and packets that do not match, for each kind of payload condition. Each text is either the payload of a
// UDP packet or a complete line.
func TestEvalPayload(t *testing.T) {
	for _, test := range []struct {
		name         string
		match        PayloadMatch
		hits, misses []string
	}{
		{"text", PayloadMatch{Any: []Pattern{text("abc", 256)}}, []string{"abc", "xabcx", "ababc", "|00|abc"},
			[]string{"ab", "Abc", "abxc", "", syn4, dns4 + " payload=\"abc\" frag=later", dns4 + " payload=\"abc\" cut=40"}},
		{"text in other protocols", PayloadMatch{Any: []Pattern{text("abc", 256)}}, []string{
			syn4 + " payload=\"abc\"", syn6 + " tcpopts=ts payload=\"abc\"", ping + " payload=\"abc\"", "gre 8.8.8.8 > 1.1.1.1 payload=\"abc\"",
			dns4 + " payload=\"abc\" frag=first"},
			[]string{syn4 + " payload=\"abc\" doff=4", syn4 + " payload=\"abc\" doff=7", syn4 + " tcpopts=616263", dns4 + " payload=\"abc\" totlen=30"}},
		{"text within", PayloadMatch{Any: []Pattern{text("abc", 4)}}, []string{"abc", "xabc", "xabcx"}, []string{"xxabc"}},
		{"either case", PayloadMatch{Any: []Pattern{noCase("a|z@[")}}, []string{"a|7c|z@[", "A|7c|Z@["},
			[]string{"a|7c|z`[", "a|7c|z@{", "a|5c|z@[", "AZ@["}},
		{"either case of ASCII only", PayloadMatch{Any: []Pattern{noCase("\xe4k")}}, []string{"|e4|K"}, []string{"|c4|k", "|e284aa|"}},
		{"one of two", PayloadMatch{Any: []Pattern{text("ab", 256), text("cd", 3)}}, []string{"xxxab", "xcd"}, []string{"xxcd", "ac"}},
		{"not text", PayloadMatch{Any: []Pattern{text("abc", 256)}, Not: true}, []string{"ab", "", dns4 + " payload=\"abc\" frag=later"}, []string{"xabc"}},

		{"at", PayloadMatch{At: []At{bytesAt(1, "bc", "\xff\xff")}}, []string{"abc", "xbcx"}, []string{"bc", "ab", "aBc", syn4, dns4 + " payload=\"abc\" frag=8"}},
		{"at with mask", PayloadMatch{At: []At{bytesAt(0, "\x40\x01", "\xf0\x01")}}, []string{"A|ff|", "O|01|"}, []string{"P|01|", "A|00|", "A"}},
		{"two places", PayloadMatch{At: []At{bytesAt(0, "a", "\xff"), bytesAt(2, "c", "\xff")}}, []string{"abc"}, []string{"abb", "bbc", "a"}},
		{"in the header", PayloadMatch{At: []At{inHeader(bytesAt(2, "\x00\x35", "\xff\xff"))}}, []string{"", "abc", "tcp 8.8.8.8:1 > 1.1.1.1:53 ."},
			[]string{syn4, "udp 8.8.8.8:53 > 1.1.1.1:54", dns4 + " frag=later"}},
		{"behind the header", PayloadMatch{At: []At{inHeader(bytesAt(8, "abc", "\xff\xff\xff"))}}, []string{"abc", "abcd"}, []string{"ab", "xabc"}},
		{"header cut short", PayloadMatch{At: []At{inHeader(bytesAt(2, "\x00\x35", "\xff\xff"))}}, []string{dns4 + " totlen=24"}, []string{dns4 + " totlen=23"}},
		{"not at", PayloadMatch{At: []At{bytesAt(1, "b", "\xff")}, Not: true}, []string{"", "a", "ac", dns4 + " payload=\"ab\" frag=later"}, []string{"ab"}},
		{"text and place", PayloadMatch{Any: []Pattern{text("b", 256)}, At: []At{bytesAt(0, "a", "\xff")}}, []string{"ab"}, []string{"a", "b", "xb"}},
		{"not text and place", PayloadMatch{Any: []Pattern{text("b", 256)}, At: []At{bytesAt(0, "a", "\xff")}, Not: true}, []string{"a", "b", "xb"}, []string{"ab"}},
		{"nothing asked", PayloadMatch{}, []string{"", "a", syn4}, nil},
	} {
		p := &Program{Default: Pass, Rules: []Rule{{Name: "rule", Payload: []PayloadMatch{test.match}, Verdict: Drop}}}
		expect(t, test.name, p, withPayload(test.hits), Drop, "rule")
		expect(t, test.name, p, withPayload(test.misses), Pass, "default")
	}
}

// withPayload converts payloads to the lines of packets. It does not change whole lines.
func withPayload(texts []string) (lines []string) {
	for _, s := range texts {
		if !strings.Contains(s, " > ") {
			s = fmt.Sprintf("%s payload=%q", dns4, s)
		}
		lines = append(lines, s)
	}
	return lines
}

// TestEvalBoth tests a rule with two matches, both of which must hold.
func TestEvalBoth(t *testing.T) {
	p := &Program{Default: Pass, Rules: []Rule{{Name: "rule", Verdict: Drop, Match: is(packet.DPort, one(packet.PortUDP+53)),
		Payload: []PayloadMatch{{Any: []Pattern{text("a", 256)}}, {Any: []Pattern{text("b", 256)}, Not: true}}}}}
	expect(t, "both", p, withPayload([]string{"a", "xa"}), Drop, "rule")
	expect(t, "both", p, withPayload([]string{"ab", "b", "", "udp 8.8.8.8:5 > 1.1.1.1:54 payload=\"a\""}), Pass, "default")
}

// TestEvalOver checks which limits are tested. They are tested in order until one is exceeded, and only if all other conditions hold.
func TestEvalOver(t *testing.T) {
	p := &Program{
		Default: Pass,
		Limits:  make([]Limit, 4),
		Rules: []Rule{
			{Name: "web", Match: is(packet.DPort, one(80)), Over: []int{0}, Verdict: Drop},
			{Name: "text", Payload: []PayloadMatch{{Any: []Pattern{text("x", 256)}}}, Over: []int{1, 2}, Verdict: Drop},
			{Name: "all", Over: []int{3, 3}, Verdict: Drop},
		},
	}
	for _, test := range []struct {
		line, over string // the limits that the packet exceeds
		asked      string
		verdict    Verdict
		reason     string
	}{
		{syn4, "", "0 3 3", Pass, "default"},
		{syn4, "0", "0", Drop, "web"},
		{syn4, "12", "0 3 3", Pass, "default"},
		{syn4, "3", "0 3", Drop, "all"},
		{dns4, "0", "3 3", Pass, "default"},
		{dns4 + " payload=\"x\"", "", "1 2 3 3", Pass, "default"},
		{dns4 + " payload=\"x\"", "1", "1", Drop, "text"},
		{dns4 + " payload=\"x\"", "2", "1 2", Drop, "text"},
		{syn4 + " payload=\"x\"", "", "0 1 2 3 3", Pass, "default"},
	} {
		var asked []string
		pkt := decode(t, test.line)
		verdict, reason := p.Eval(&pkt, World{Over: func(limit int, of *packet.Packet) bool {
			asked = append(asked, fmt.Sprint(limit))
			return of == &pkt && strings.Contains(test.over, fmt.Sprint(limit))
		}})
		if got := p.ReasonName(reason); verdict != test.verdict || got != test.reason || strings.Join(asked, " ") != test.asked {
			t.Errorf("%s over %q: %s %s, asked %s, want %s %s, %s", test.line, test.over, verdict, got, asked, test.verdict, test.reason, test.asked)
		}
	}
	expect(t, "without limits", p, []string{syn4, dns4 + " payload=\"x\""}, Pass, "default")
}

// TestEvalObserve checks that rules and checks that only count are reported, but decide no packet.
func TestEvalObserve(t *testing.T) {
	p := &Program{
		Checks:   packet.CheckSet(0).With(packet.TTLZero),
		Observed: packet.CheckSet(0).With(packet.BogonSource).With(packet.SYNLowPort).With(packet.OwnSource),
		Sets:     []Set{{Dynamic: &Dynamic{Local: true}}},
		Limits:   make([]Limit, 1),
		Rules: []Rule{
			{Name: "watch", Match: is(packet.DPort, one(80)), Verdict: Drop, Observe: true},
			{Name: "over", Match: is(packet.DPort, one(80)), Over: []int{0}, Verdict: Pass, Observe: true},
			{Name: "drop", Match: is(packet.Family, one(packet.FamilyIPv4)), Verdict: Drop},
			{Name: "late", Verdict: Drop, Observe: true},
		},
	}
	for _, test := range []struct{ line, members, over, observed, reason string }{
		{syn4, "", "", "watch", "drop"},
		{syn4, "", "0", "watch over", "drop"},
		{syn6, "", "", "watch late", "default"},
		{dns4, "", "0", "", "drop"},
		{"tcp 10.0.0.1:4000 > 1.1.1.1:80", "", "", "bogon-source watch", "drop"},
		{"tcp 10.0.0.1:80 > 1.1.1.1:80", "", "", "bogon-source watch", "drop"}, // only the first failed check is reported
		{"tcp 8.8.8.8:80 > 1.1.1.1:80", "", "", "syn-low-port watch", "drop"},
		{"tcp 8.8.8.8:80 > 1.1.1.1:81", "0 8.8.8.8", "", "own-source", "drop"},
		{"tcp 10.0.0.1:80 > 1.1.1.1:80 ttl=0", "", "0", "", "ttl-zero"},
		{"arp", "", "", "", "not-ip"},
		{syn4 + " cut=30", "", "", "", "default"},
	} {
		var observed []string
		pkt := decode(t, test.line)
		_, reason := p.Eval(&pkt, World{
			Member:  membersOf(test.members),
			Over:    func(limit int, _ *packet.Packet) bool { return strings.Contains(test.over, fmt.Sprint(limit)) },
			Observe: func(r Reason) { observed = append(observed, p.ReasonName(r)) },
		})
		if got := strings.Join(observed, " "); got != test.observed || p.ReasonName(reason) != test.reason {
			t.Errorf("%s: observed by %s, decided by %s, want %s, %s", test.line, got, p.ReasonName(reason), test.observed, test.reason)
		}
	}
	expect(t, "nobody listens", p, []string{syn4}, Drop, "drop")
}

// TestEvalTruncate checks that a rule with the verdict Truncate matches packets like any other rule.
func TestEvalTruncate(t *testing.T) {
	p := &Program{Default: Pass, Rules: []Rule{{Name: "any", Match: is(packet.DNS, one(255)), Verdict: Truncate, Slip: 2, Sample: 10}}}
	expect(t, "ANY", p, []string{dns4 + " dns=ANY,x", dns4 + " dns=255,.,do"}, Truncate, "any")
	expect(t, "ANY", p, []string{query("x"), dns4 + " dns=ANY,x,response", dns4, syn4}, Pass, "default")
}

// TestConditional checks for each condition and action of a rule whether Conditional returns true, because the rule may leave packets undecided that
// its fields match.
func TestConditional(t *testing.T) {
	for _, r := range []Rule{{Names: []NameMatch{{}}}, {Payload: []PayloadMatch{{}}}, {Over: []int{0}}, {Observe: true}} {
		if !r.Conditional() {
			t.Errorf("%+v asks for nothing more", r)
		}
	}
	for _, r := range []Rule{{}, {Verdict: Truncate, Slip: 2, Sample: 3}, {Src: []AddrMatch{{}}, Dst: []AddrMatch{{}}, Match: not(packet.DNS, 0)}} {
		if r.Conditional() {
			t.Errorf("%+v asks for more", r)
		}
	}
}
