// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Packets that fail no check.
const (
	syn4 = "tcp 8.8.8.8:40000 > 1.1.1.1:80 S"
	syn6 = "tcp [2606:4700::1]:40000 > [2606:4700::2]:80 S"
	dns4 = "udp 8.8.8.8:40000 > 1.1.1.1:53"
	ping = "icmp 8.8.8.8 > 1.1.1.1 echo-request"
)

func decode(t testing.TB, line string) packet.Packet {
	t.Helper()
	s, err := packet.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	return s.Packet()
}

// eval decides a packet by p. members are the addresses of dynamic sets, in the form "index address".
func eval(t testing.TB, p *Program, line string, members ...string) (Verdict, string) {
	t.Helper()
	pkt := decode(t, line)
	verdict, reason := p.Eval(&pkt, World{Member: membersOf(members...)})
	return verdict, p.ReasonName(reason)
}

// membersOf returns the membership function of dynamic sets with the addresses in words, each in the form "index address".
func membersOf(words ...string) func(set int, a netip.Addr) bool {
	return func(set int, a netip.Addr) bool { return slices.Contains(words, fmt.Sprintf("%d %s", set, a)) }
}

func is(f packet.Field, ranges ...Range) []Match { return []Match{{Field: f, Values: ranges}} }

func one(v uint32) Range { return Range{First: v, Last: v} }

// not returns a match for all values of f except one.
func not(f packet.Field, v uint32) []Match {
	var values []Range
	if v > 0 {
		values = append(values, Range{First: 0, Last: v - 1})
	}
	if v < f.Size()-1 {
		values = append(values, Range{First: v + 1, Last: f.Size() - 1})
	}
	return []Match{{Field: f, Values: values}}
}

// TestEvalField tests packets that match and packets that do not match, for each field.
func TestEvalField(t *testing.T) {
	const udp = packet.PortUDP
	for _, test := range []struct {
		name   string
		match  []Match
		hits   []string
		misses []string
	}{
		{"nothing asked", nil, []string{syn4, syn6, dns4, ping}, nil},
		{"proto", is(packet.Proto, one(6)), []string{syn4, syn6}, []string{dns4, ping}},
		{"proto of two", is(packet.Proto, one(1), one(17)), []string{dns4, ping}, []string{syn4, "icmpv6 2606::1 > 2606::2"}},
		{"port tcp", is(packet.DPort, one(80)), []string{syn4, syn6}, []string{dns4, "udp 8.8.8.8:5 > 1.1.1.1:80", ping}},
		{"port udp", is(packet.DPort, one(udp+53)), []string{dns4}, []string{"tcp 8.8.8.8:5 > 1.1.1.1:53 .", ping}},
		{"port range", is(packet.DPort, Range{First: 79, Last: 81}), []string{syn4, "tcp 8.8.8.8:5 > 1.1.1.1:79", "tcp 8.8.8.8:5 > 1.1.1.1:81"},
			[]string{"tcp 8.8.8.8:5 > 1.1.1.1:78", "tcp 8.8.8.8:5 > 1.1.1.1:82"}},
		{"port and later fragment", is(packet.DPort, one(80)), nil, []string{syn4 + " frag=later", syn6 + " frag=later"}},
		{"port and first fragment", is(packet.DPort, one(80)), []string{syn4 + " frag=first", syn6 + " frag=first"}, nil},
		{"not port", not(packet.DPort, 80), []string{dns4, ping, syn4 + " frag=later"}, []string{syn4, syn6}},
		{"sport", is(packet.SPort, one(40000)), []string{syn4}, []string{dns4, "tcp 8.8.8.8:80 > 1.1.1.1:40000"}},
		{"family", is(packet.Family, one(packet.FamilyIPv6)), []string{syn6}, []string{syn4}},
		{"flags", is(packet.Flags, one(2), one(0x12)), []string{syn4, "tcp 8.8.8.8:5 > 1.1.1.1:80 S."},
			[]string{"tcp 8.8.8.8:5 > 1.1.1.1:80 .", dns4}},
		{"not flags", not(packet.Flags, 2), []string{dns4, "tcp 8.8.8.8:5 > 1.1.1.1:80 ."}, []string{syn4}},
		{"icmp", is(packet.ICMP, one(8<<8)), []string{ping}, []string{"icmp 8.8.8.8 > 1.1.1.1 echo-reply", "icmpv6 2606::1 > 2606::2 type=8", dns4}},
		{"icmpv6 type", is(packet.ICMP, Range{First: packet.ICMPv6 + 128<<8, Last: packet.ICMPv6 + 129<<8 - 1}),
			[]string{"icmpv6 2606::1 > 2606::2 type=128 code=7"}, []string{"icmpv6 2606::1 > 2606::2 type=129", "icmp 8.8.8.8 > 1.1.1.1 type=128"}},
		{"length", is(packet.Length, Range{First: 100, Last: 200}), []string{dns4 + " len=100", dns4 + " len=200"}, []string{dns4 + " len=99", dns4 + " len=201"}},
		{"ttl", is(packet.TTL, Range{First: 0, Last: 5}), []string{syn4 + " ttl=5", syn6 + " ttl=1"}, []string{syn4, syn6 + " ttl=6"}},
		{"dscp", is(packet.DSCP, one(46)), []string{syn4 + " dscp=46", syn6 + " dscp=46"}, []string{syn4}},
		{"fragment", is(packet.Fragment, Range{First: packet.FragmentFirst, Last: packet.FragmentLater}),
			[]string{dns4 + " frag=first", dns4 + " frag=later"}, []string{dns4}},
		{"vlan", is(packet.VLAN, one(10)), []string{syn4 + " vlan=10", syn6 + " vlan=10,20"}, []string{syn4, syn4 + " vlan=20,10"}},
		{"no vlan", is(packet.VLAN, one(packet.VLANNone)), []string{syn4}, []string{syn4 + " vlan=0"}},
		{"state", is(packet.State, one(packet.StateEstablished)), []string{syn4 + " state=established", ping + " state=established"},
			[]string{syn4, syn4 + " state=new", syn4 + " state=related", syn4 + " state=invalid", syn4 + " state=untracked"}},
		{"state of two", is(packet.State, one(packet.StateNew), one(packet.StateInvalid)),
			[]string{syn4, syn6 + " state=new", dns4 + " state=invalid"}, []string{syn4 + " state=established", dns4 + " state=untracked"}},
		{"not state", not(packet.State, packet.StateUntracked), []string{syn4, syn6 + " state=invalid"}, []string{syn4 + " state=untracked"}},
		{"no value", is(packet.TTL), nil, []string{syn4}},
		{"two fields", append(is(packet.DPort, one(80)), is(packet.TTL, one(64))...), []string{syn4}, []string{syn4 + " ttl=63", dns4}},
	} {
		p := &Program{Default: Pass, Rules: []Rule{{Name: "rule", Match: test.match, Verdict: Drop}}}
		expect(t, test.name, p, test.hits, Drop, "rule")
		expect(t, test.name, p, test.misses, Pass, "default")
	}
}

func expect(t *testing.T, name string, p *Program, lines []string, verdict Verdict, reason string) {
	t.Helper()
	for _, line := range lines {
		if v, r := eval(t, p, line); v != verdict || r != reason {
			t.Errorf("%s: %s\n got %s %s\nwant %s %s", name, line, v, r, verdict, reason)
		}
	}
}

func set(t testing.TB, entries ...string) Set {
	t.Helper()
	var b addrs.Builder
	for _, e := range entries {
		if err := b.AddText(e); err != nil {
			t.Fatal(err)
		}
	}
	return Set{Static: b.Set(), Entries: len(entries)}
}

// TestEvalAddresses tests rules with three sets: 0 and 1 are static, 2 is dynamic.
func TestEvalAddresses(t *testing.T) {
	sets := []Set{set(t, "8.8.0.0/16", "2606:4700::/32"), set(t, "9.9.9.9"), {Name: "bans", Dynamic: &Dynamic{}}}
	const nine, other = "tcp 9.9.9.9:40000 > 1.1.1.1:80 S", "tcp 7.7.7.7:40000 > 8.8.4.4:80 S"
	for _, test := range []struct {
		name     string
		src, dst []AddrMatch
		members  string
		hits     string // the packets that the rule decides: 8 = syn4, 6 = syn6, 9 = nine, o = other
	}{
		{"in a set", []AddrMatch{{Sets: []int{0}}}, nil, "", "86"},
		{"in one of two", []AddrMatch{{Sets: []int{0, 1}}}, nil, "", "869"},
		{"not in", []AddrMatch{{Sets: []int{0}, Not: true}}, nil, "", "9o"},
		{"not in either", []AddrMatch{{Sets: []int{0, 1}, Not: true}}, nil, "", "o"},
		{"in, but not in", []AddrMatch{{Sets: []int{0, 1}}, {Sets: []int{1}, Not: true}}, nil, "", "86"},
		{"destination", nil, []AddrMatch{{Sets: []int{0}}}, "", "6o"},
		{"not destination", nil, []AddrMatch{{Sets: []int{0}, Not: true}}, "", "89"},
		{"both", []AddrMatch{{Sets: []int{0}}}, []AddrMatch{{Sets: []int{0}}}, "", "6"},
		{"no sets", []AddrMatch{{}}, nil, "", ""},
		{"not in no sets", []AddrMatch{{Not: true}}, nil, "", "869o"},
		{"empty dynamic set", []AddrMatch{{Sets: []int{2}}}, nil, "", ""},
		{"dynamic set", []AddrMatch{{Sets: []int{2}}}, nil, "2 9.9.9.9", "9"},
		{"dynamic or static", []AddrMatch{{Sets: []int{1, 2}}}, nil, "2 7.7.7.7", "9o"},
		{"not in dynamic set", []AddrMatch{{Sets: []int{2}, Not: true}}, nil, "2 2606:4700::1", "89o"},
		{"static sets have no members", []AddrMatch{{Sets: []int{1}}}, nil, "1 7.7.7.7", "9"},
	} {
		p := &Program{Default: Pass, Sets: sets, Rules: []Rule{{Name: "rule", Src: test.src, Dst: test.dst, Verdict: Drop}}}
		for key, line := range map[string]string{"8": syn4, "6": syn6, "9": nine, "o": other} {
			want := Pass
			if strings.Contains(test.hits, key) {
				want = Drop
			}
			if v, r := eval(t, p, line, test.members); v != want {
				t.Errorf("%s: %s: %s %s, want %s", test.name, line, v, r, want)
			}
		}
	}
}

// TestEvalNoMembers calls Eval without a membership function. Dynamic sets are then empty.
func TestEvalNoMembers(t *testing.T) {
	p := &Program{
		Checks: packet.CheckSet(0).With(packet.OwnSource),
		Sets:   []Set{{Dynamic: &Dynamic{Local: true}}},
		Rules:  []Rule{{Name: "other", Src: []AddrMatch{{Sets: []int{0}, Not: true}}, Verdict: Drop}},
	}
	pkt := decode(t, syn4)
	if v, r := p.Eval(&pkt, World{}); v != Drop || p.ReasonName(r) != "other" {
		t.Errorf("%s %s", v, p.ReasonName(r))
	}
}

// TestEvalOrder tests the order of the stages with one program in which every stage decides some packet.
func TestEvalOrder(t *testing.T) {
	p := &Program{
		Checks: packet.Strict.Checks(),
		Sets:   []Set{{Dynamic: &Dynamic{Local: true}}, {Dynamic: &Dynamic{}}},
		Rules: []Rule{
			{Name: "office", Src: []AddrMatch{{Sets: []int{1}}}, Verdict: Pass},
			{Name: "no dns", Match: is(packet.DPort, one(packet.PortUDP+53)), Verdict: Drop},
			{Name: "v4", Match: is(packet.Family, one(packet.FamilyIPv4)), Verdict: Pass},
			{Name: "never", Match: is(packet.DPort, one(packet.PortUDP+53)), Verdict: Pass},
		},
		Default: Drop,
	}
	for _, test := range []struct {
		line, members string
		verdict       Verdict
		reason        string
	}{
		{dns4, "", Drop, "no dns"},
		{dns4, "1 8.8.8.8", Pass, "office"},
		{dns4, "1 1.1.1.1", Drop, "no dns"},
		{syn4, "", Pass, "v4"},
		{syn6, "", Drop, "default"},
		{"arp", "", Pass, "not-ip"},
		{"arp smac=01:00:5e:00:00:01", "", Drop, "source-mac"},
		{syn4 + " vlan=1,2,3", "", Drop, "vlan-depth"},
		{syn4 + " cut=30", "", Drop, "truncated"},
		{syn4 + " ttl=0", "1 8.8.8.8", Drop, "ttl-zero"},
		{"tcp 8.8.8.8:0 > 8.8.8.8:80 S ttl=0", "", Drop, "ttl-zero"},
		{"tcp 8.8.8.8:0 > 8.8.8.8:80 S", "", Drop, "land"},
		{"tcp 8.8.8.8:0 > 1.1.1.1:80 S", "", Drop, "port-zero"},
		{syn4, "0 8.8.8.8", Drop, "own-source"},
		{syn4, "0 1.1.1.1", Pass, "v4"},
		{"tcp 8.8.8.8:0 > 1.1.1.1:80 S", "0 8.8.8.8", Drop, "own-source"},
		{"tcp 8.8.8.8:0 > 8.8.8.8:80 S", "0 8.8.8.8", Drop, "land"},
		{"udp 10.0.0.1:68 > 1.1.1.1:67", "", Pass, "v4"}, // bogon-source is in no profile
	} {
		if v, r := eval(t, p, test.line, test.members); v != test.verdict || r != test.reason {
			t.Errorf("%s (%s)\n got %s %s\nwant %s %s", test.line, test.members, v, r, test.verdict, test.reason)
		}
	}
}

// TestEvalUnreadable checks that rules do not apply to a frame without an IP header, and that disabled checks do nothing.
func TestEvalUnreadable(t *testing.T) {
	for _, fallback := range []Verdict{Pass, Drop} {
		p := &Program{Rules: []Rule{{Name: "all", Verdict: 1 - fallback}}, Default: fallback, Sets: []Set{{Dynamic: &Dynamic{Local: true}}}}
		for _, test := range []struct {
			line    string
			verdict Verdict
			reason  string
		}{
			{syn4 + " cut=30", fallback, "default"},
			{syn4 + " ihl=4", fallback, "default"},
			{syn4 + " vlan=1,2,3", Pass, "not-ip"},
			{"arp smac=01:00:5e:00:00:01", Pass, "not-ip"},
			{syn4 + " ttl=0", 1 - fallback, "all"},
			{syn4, 1 - fallback, "all"},
		} {
			if v, r := eval(t, p, test.line, "0 8.8.8.8"); v != test.verdict || r != test.reason {
				t.Errorf("default %s: %s\n got %s %s\nwant %s %s", fallback, test.line, v, r, test.verdict, test.reason)
			}
		}
	}
}

// TestEvalReject checks that a rule with the verdict Reject matches packets like any other rule.
func TestEvalReject(t *testing.T) {
	p := &Program{
		Checks: packet.Standard.Checks(),
		Rules: []Rule{
			{Name: "replies", Match: is(packet.State, one(packet.StateEstablished)), Verdict: Pass},
			{Name: "closed", Match: is(packet.DPort, one(80)), Verdict: Reject},
			{Name: "never", Match: is(packet.DPort, one(80)), Verdict: Drop},
		},
		Default: Drop,
	}
	for _, test := range []struct {
		line    string
		verdict Verdict
		reason  string
	}{
		{syn4, Reject, "closed"},
		{syn6 + " state=invalid", Reject, "closed"},
		{syn4 + " state=established", Pass, "replies"},
		{syn4 + " ttl=0", Drop, "ttl-zero"},
		{dns4, Drop, "default"},
	} {
		expect(t, "reject", p, []string{test.line}, test.verdict, test.reason)
	}
}

// TestUntrackedDecidesNothing checks that an exemption from tracking does not by itself change a packet's verdict or state.
func TestUntrackedDecidesNothing(t *testing.T) {
	p := &Program{
		Rules: []Rule{{Name: "raw", Match: is(packet.State, one(packet.StateUntracked)), Verdict: Pass}},
		Untracked: Untracked{
			Services: []UntrackedService{{Name: "web", Ports: []Range{one(80)}}},
			Loopback: true,
		},
		Default: Drop,
	}
	expect(t, "not said", p, []string{syn4, "tcp 127.0.0.1:5 > 127.0.0.1:80"}, Drop, "default")
	expect(t, "said", p, []string{syn4 + " state=untracked"}, Pass, "raw")
}

// TestRepliesFirst checks that replies pass the checks of source addresses, but no other check.
func TestRepliesFirst(t *testing.T) {
	p := &Program{Default: Pass, Checks: packet.Strict.Checks().With(packet.BogonSource), RepliesFirst: true}
	for line, want := range map[string]string{
		"udp 8.8.8.8:161 > 1.1.1.1:4000":                             "reflector-source",
		"udp 8.8.8.8:161 > 1.1.1.1:4000 state=established":           "default",
		"udp 8.8.8.8:161 > 1.1.1.1:4000 state=invalid":               "reflector-source",
		"udp 8.8.8.8:161 > 1.1.1.1:4000 state=untracked":             "reflector-source",
		"udp 169.254.169.254:53 > 1.1.1.1:4000":                      "bogon-source",
		"udp 169.254.169.254:53 > 1.1.1.1:4000 state=established":    "default",
		"icmp 10.0.0.1 > 1.1.1.1 type=3 code=4 state=related":        "default",
		"udp 127.0.0.1:161 > 1.1.1.1:4000 state=established":         "source-address",
		"udp 1.1.1.1:161 > 1.1.1.1:4000 state=established":           "land",
		"tcp 10.0.0.1:80 > 1.1.1.1:4000 SF state=established":        "tcp-flags",
		"udp [fd00::1]:5353 > [2606:4700::2]:4000 state=established": "default",
		"udp [fd00::1]:5353 > [2606:4700::2]:4000":                   "bogon-source",
		"udp 8.8.8.8:161 > 1.1.1.1:4000 ttl=0 state=established":     "ttl-zero",
	} {
		if _, got := eval(t, p, line); got != want {
			t.Errorf("%s: %s decides, should be %s", line, got, want)
		}
	}
	p.RepliesFirst = false
	if _, got := eval(t, p, "udp 8.8.8.8:161 > 1.1.1.1:4000 state=established"); got != "reflector-source" {
		t.Errorf("where replies do not come first, %s decides", got)
	}
}
