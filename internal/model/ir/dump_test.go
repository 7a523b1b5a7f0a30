// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// TestString tests the text of a program with a line of each kind.
func TestString(t *testing.T) {
	p := &Program{
		Checks: packet.CheckSet(0).With(packet.Land),
		Sets:   []Set{set(t, "192.0.2.0/24"), {Name: "bans", Dynamic: &Dynamic{}, Max: 5}},
		Rules: []Rule{
			{Name: "bans", Src: []AddrMatch{{Sets: []int{1}}}, Dst: []AddrMatch{{Sets: []int{0}, Not: true}}, Verdict: Drop},
			{Name: "replies", Match: is(packet.State, Range{First: packet.StateEstablished, Last: packet.StateRelated})},
			{Name: "odd", Match: is(packet.State, one(packet.StateNew), Range{First: packet.StateInvalid, Last: packet.StateUntracked}), Verdict: Drop},
			{Name: "closed", Match: is(packet.DPort, Range{First: 20, Last: 23}, one(packet.PortUDP+53)), Verdict: Reject, Merged: 3},
			{Name: "web", Kind: RuleKindService, Match: is(packet.DPort, one(80))},
		},
		Default: Drop,
	}
	want := `checks land
set $0: 192.0.2.0/24
set $bans: filled at run time, at most 5 entries
rule bans: drop from=$bans to!=$0
rule replies: pass state=established-related
rule odd: drop state=new,invalid-untracked
rule closed: reject port=tcp/20-tcp/23,udp/53 (3 rules in one)
service web: pass port=tcp/80
default: drop
`
	for _, test := range []struct {
		untracked Untracked
		line      string
	}{
		{Untracked{}, ""},
		{Untracked{Loopback: true}, "untracked: loopback\n"},
		{Untracked{Services: []UntrackedService{{Name: "web", Ports: []Range{one(80)}}}}, "untracked: web tcp/80\n"},
		{Untracked{
			Services: []UntrackedService{{Name: "web", Ports: []Range{one(80), one(443)}}, {Name: "dns", Ports: []Range{one(packet.PortUDP + 53)}}},
			Loopback: true,
		}, "untracked: web tcp/80,tcp/443, dns udp/53, loopback\n"},
		{Untracked{Flows: []Rule{{Name: "proto=ospf"}}, Multicast: true, Broadcast: true}, "untracked: proto=ospf, multicast, broadcast\n"},
		{Untracked{All: true}, "untracked: all\n"},
	} {
		p.Untracked = test.untracked
		if diff := cmp.Diff(want+test.line, p.String()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// TestStringConditions tests the text of rules with each condition besides addresses and fields, and with each action besides a verdict.
func TestStringConditions(t *testing.T) {
	dns := func(ranges ...Range) []Match { return is(packet.DNS, ranges...) }
	p := &Program{
		Checks:   packet.CheckSet(0).With(packet.Land),
		Observed: packet.CheckSet(0).With(packet.BogonSource).With(packet.OwnSource),
		Sets:     []Set{{Name: "bans", Dynamic: &Dynamic{}, Max: 5}},
		Names: []NameSet{
			{Name: "bad", Names: []string{"evil.example", ""}},
			{Names: []string{"x.example", "y.example"}},
			{Name: "many", Names: []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}},
			{Name: "none"},
		},
		Limits: []Limit{
			{Rate: 1000, Per: time.Second, Burst: 2000, Src: &Prefixes{16, 64}, Max: 4096, Ban: &Ban{Set: 0, For: 10 * time.Minute}},
			{Rate: 10_000_000, Per: time.Minute, Bits: true, Burst: 120_000, Src: &Prefixes{24, 56}, Dst: &Prefixes{32, 64}},
			{Rate: 1, Per: 24 * time.Hour, Burst: 5},
			{Rate: 1_000_000_000_000, Per: time.Hour, Bits: true, Burst: 1_234_000, Dst: &Prefixes{32, 128}},
		},
		Rules: []Rule{
			{Name: "names", Match: dns(Range{First: 0, Last: 65535}), Names: []NameMatch{{Sets: []int{0, 1}}, {Sets: []int{2}, Not: true}}, Verdict: Drop},
			{Name: "types", Match: dns(one(16), Range{First: 255, Last: 256}, one(1000)), Verdict: Truncate, Slip: 2},
			{Name: "kinds", Match: dns(Range{First: packet.DNSResponse, Last: packet.DNSMalformed}, one(packet.DNSNone)), Observe: true},
			{Name: "texts", Verdict: Drop, Payload: []PayloadMatch{{
				Any: []Pattern{{Text: []byte("GET \r\n\"|"), Within: 256}, {Text: []byte("x"), NoCase: true, Within: 1024}},
				At:  []At{{Offset: 3, Value: []byte{0xde, 0xa0}, Mask: []byte{0xff, 0xf0}}},
			}}},
			{Name: "places", Verdict: Drop, Payload: []PayloadMatch{{Not: true, At: []At{
				{Value: []byte{1}, Mask: []byte{1}}, {Base: BaseL4, Offset: 12, Value: []byte{0}, Mask: []byte{0xff}},
			}}}},
			{Name: "rates", Over: []int{0, 1, 2}, Verdict: Drop, Sample: 100, Merged: 2},
			{Name: "web:syn", Kind: RuleKindService, Match: is(packet.DPort, one(80)), Protect: 1},
		},
		Guards: []Guard{
			{Service: "dns", Ports: []Range{one(53), one(packet.PortUDP + 53)}, Verify: time.Hour, Secrets: make([][16]byte, 2), Out: 3, Observe: true},
			{Service: "other", Ports: []Range{one(packet.PortUDP + 54)}, Out: -1},
		},
		Protections: []Protection{
			{Service: "web", Ports: []Range{one(80)}, Start: 2, Stop: 2, Limits: []int{1, 2}, WScale: -1, Flows: 9},
			{Service: "far", Ports: []Range{{First: 80, Last: 90}}, Router: true, Always: true, Start: -1, Stop: -1, MSS: 1460, Flows: 1,
				Backends: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
		},
	}
	want := `checks land
observed checks bogon-source own-source
set $bans: filled at run time, at most 5 entries
names $bad: evil.example .
names $many: a b c d e f g h … (9 names)
names $none: empty
rule names: drop dns=query dns.name=$bad,x.example,y.example dns.name!=$many
rule types: truncate dns=TXT,ANY-URI,1000 slip=2
rule kinds: pass dns=response-malformed,none observe
rule texts: drop payload={contains: ["GET |0d 0a|\"|7c|" within 256, "x" nocase within 1024], at: [{offset: 3, bytes: "|de a0|", mask: "|ff f0|"}]}
rule places: drop payload!={at: [{offset: 0, bytes: "|01|", mask: "|01|"}, {offset: 12, bytes: "|00|", mask: "|ff|", from: header}]}
rule rates: drop over={rate: 1000/s, per: from/16/64, burst: 2000, max: 4096, ban: {for: 10m0s, set: bans}} over={rate: 10mbit/min, per: from/24/56+to/32/64, burst: 120kbit} over={rate: 1/day, burst: 5} sample=1/100 (2 rules in one)
service web:syn: pass port=tcp/80 protect
default: pass
guard dns: tcp/53,udp/53 verify=1h0m0s secrets=2 responses={rate: 1000gbit/h, per: to/32/128, burst: 1234kbit} observe
guard other: udp/54
protection web: tcp/80 host start={rate: 1/day, burst: 5} stop={rate: 1/day, burst: 5} limit={rate: 10mbit/min, per: from/24/56+to/32/64, burst: 120kbit} limit={rate: 1/day, burst: 5} flows=9
protection far: tcp/80-tcp/90 router always mss=1460 wscale=0 flows=1 backend=192.0.2.1 backend=2001:db8::1
`
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
