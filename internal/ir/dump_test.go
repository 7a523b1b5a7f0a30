package ir

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/packet"
)

// TestString has a program with a line of each kind.
func TestString(t *testing.T) {
	p := &Program{
		Checks: packet.CheckSet(0).With(packet.Land),
		Sets:   []Set{set(t, "192.0.2.0/24"), {Name: "bans", Dynamic: &Dynamic{}, Max: 5}},
		Rules: []Rule{
			{Name: "bans", Src: []AddrMatch{{Sets: []int{1}}}, Dst: []AddrMatch{{Sets: []int{0}, Not: true}}, Verdict: Drop},
			{Name: "replies", Match: is(packet.State, Range{packet.StateEstablished, packet.StateRelated})},
			{Name: "odd", Match: is(packet.State, one(packet.StateNew), Range{packet.StateInvalid, packet.StateUntracked}), Verdict: Drop},
			{Name: "closed", Match: is(packet.DPort, Range{20, 23}, one(packet.PortUDP+53)), Verdict: Reject, Merged: 3},
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
		{Untracked{Services: []UntrackedService{{"web", []Range{one(80)}}}}, "untracked: web tcp/80\n"},
		{Untracked{
			Services: []UntrackedService{{"web", []Range{one(80), one(443)}}, {"dns", []Range{one(packet.PortUDP + 53)}}},
			Loopback: true,
		}, "untracked: web tcp/80,tcp/443, dns udp/53, loopback\n"},
	} {
		p.Untracked = test.untracked
		if diff := cmp.Diff(want+test.line, p.String()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}
