// SPDX-License-Identifier: Apache-2.0

package suggest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

func anywhere(r *rand.Rand) string {
	return fmt.Sprintf("%d.%d.%d.%d", 1+r.IntN(220), r.IntN(256), r.IntN(256), 1+r.IntN(254))
}

func words(r *rand.Rand) string {
	b := make([]byte, 8+r.IntN(8))
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return string(b)
}

// vectors are attacks, each with the keys that a rule against it must have.
var vectors = []struct {
	name string
	line func(r *rand.Rand) string
	want []string
}{
	{"NTP amplification", func(r *rand.Rand) string {
		return fmt.Sprintf("udp %s:123 > 10.10.10.10:%d len=468 ttl=%d payload=0xd7000348", anywhere(r), r.IntN(65536), 40+r.IntN(80))
	}, []string{"sport: udp/123", "length: 468", `bytes: "|d7 00 03|H`}},
	{"random names", func(r *rand.Rand) string {
		return fmt.Sprintf("udp %s:%d > 10.10.10.10:53 ttl=%d dns=A,%s.shop.example,id:%d", anywhere(r), 1024+r.IntN(60000), 40+r.IntN(80), words(r), r.IntN(65536))
	}, []string{"port: udp/53", `name: "shop.example"`}},
	{"DNS ANY", func(r *rand.Rand) string {
		return fmt.Sprintf("udp %s:%d > 10.10.10.10:53 ttl=%d dns=ANY,%s.example,id:%d", anywhere(r), 1024+r.IntN(60000), 40+r.IntN(80), words(r), r.IntN(65536))
	}, []string{"port: udp/53", "type: ANY"}},
	{"ICMP", func(r *rand.Rand) string {
		return fmt.Sprintf("icmp %s > 10.10.10.10 echo-request len=1028 ttl=%d", anywhere(r), 40+r.IntN(80))
	}, []string{"icmp: icmp/8/0", "length: 1028"}},
	{"ICMP of all types", func(r *rand.Rand) string {
		return fmt.Sprintf("icmp %s > 10.10.10.10 type=%d code=%d len=900 ttl=%d", anywhere(r), r.IntN(256), r.IntN(256), 40+r.IntN(80))
	}, []string{"proto: icmp", "length: 900"}},
	{"TCP of all flags", func(r *rand.Rand) string {
		return fmt.Sprintf("tcp %s:%d > 10.10.10.10:%d %s win=77 ttl=%d seq=%d", anywhere(r), 1024+r.IntN(60000), r.IntN(65536), "FSRPAU"[r.IntN(6):], 40+r.IntN(80), r.Uint32())
	}, []string{"|00|M"}},
	{"GRE", func(r *rand.Rand) string {
		return fmt.Sprintf("proto=47 %s > 10.10.10.10 len=540 ttl=%d", anywhere(r), 40+r.IntN(80))
	}, []string{"proto: gre", "length: 540"}},
	{"a payload", func(r *rand.Rand) string {
		return fmt.Sprintf("udp %s:%d > 10.10.10.10:443 ttl=%d len=%d payload=\"XXgetstatus%s\"", anywhere(r), 1024+r.IntN(60000), 40+r.IntN(80), 60+r.IntN(1100), words(r))
	}, []string{"port: udp/443", "XXgetstatus"}},
	{"a network", func(r *rand.Rand) string {
		return fmt.Sprintf("tcp 203.0.113.%d:%d > 10.10.10.10:443 P. ttl=%d seq=%d ack=%d len=%d", r.IntN(256), 32768+r.IntN(28000), 52+r.IntN(3), r.Uint32(), r.Uint32(), 40+r.IntN(1460))
	}, []string{"from: 203.0.113.0/24", "port: tcp/443", "ttl: 52-54"}},
	{"SYNs of IPv6", func(r *rand.Rand) string {
		return fmt.Sprintf("tcp [2001:db8:%x:%x::%x]:%d > [2001:db8::1]:443 S ttl=%d seq=%d win=512", r.IntN(65536), r.IntN(65536), r.IntN(65536), 1024+r.IntN(60000), 40+r.IntN(80), r.Uint32())
	}, []string{`flags: "syn/fin,syn,rst,psh,ack,urg"`, "port: tcp/443", "from: 2001:db8::/32"}},
	{"fragments", func(r *rand.Rand) string {
		return fmt.Sprintf("udp %s > 10.10.10.10 frag=1480 len=%d ttl=%d", anywhere(r), 500+r.IntN(900), 40+r.IntN(80))
	}, []string{"fragment: later", "proto: udp"}},
}

// TestVectors searches for rules against each vector alone, and then against all vectors at once, among legitimate packets. The rules are tested with
// packets that the search did not get.
func TestVectors(t *testing.T) {
	t.Parallel()
	r := testutil.Random(t)
	baseline, judged := legitimate(r, 4000), legitimate(r, 4000)
	var all, fresh []suggest.Sample
	for _, v := range vectors {
		attack, more := packets(600, func() string { return v.line(r) }), packets(200, func() string { return v.line(r) })
		all, fresh = append(all, attack...), append(fresh, more...)
		rules := find(t, append(attack, legitimate(r, 200)...), baseline)
		text := judge(t, v.name, rules, more, judged)
		for _, want := range v.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %s in\n%s", v.name, want, text)
			}
		}
	}
	eight := 8 * 600 // the most rules that are suggested
	rules := find(t, append(all[:eight], legitimate(r, 1000)...), baseline)
	judge(t, "all", rules, fresh[:8*200], judged)
	if len(rules) < 6 || len(rules) > 8 { // similar vectors may share a rule
		t.Errorf("%d rules against 8 vectors", len(rules))
	}
}

func find(t *testing.T, attack, baseline []suggest.Sample) []suggest.Rule {
	t.Helper()
	r, err := suggest.Find(suggest.Input{Program: &ir.Program{}, Attack: attack, Good: baseline, Collateral: 0.001})
	check(t, err)
	return r.Rules
}

// judge counts the packets that rules match, and returns the rules' text.
func judge(t *testing.T, name string, rules []suggest.Rule, attack, good []suggest.Sample) (text string) {
	t.Helper()
	covered, harmed := 0, 0
	for _, rule := range rules {
		covered += matches(t, rule, attack)
		harmed += matches(t, rule, good)
		text += rule.Text + "\n"
	}
	if covered < len(attack)*95/100 || harmed > len(good)/1000 {
		t.Errorf("%s: %d of %d packets of the attack, %d of %d legitimate ones\n%s", name, covered, len(attack), harmed, len(good), text)
	}
	return text
}

// TestNoAttack searches for rules in legitimate traffic only.
func TestNoAttack(t *testing.T) {
	t.Parallel()
	r := testutil.Random(t)
	if rules := find(t, legitimate(r, 5000), legitimate(r, 5000)); len(rules) > 0 {
		t.Errorf("rules against legitimate traffic: %+v", rules)
	}
	if rules := find(t, nil, legitimate(r, 10)); len(rules) > 0 {
		t.Errorf("rules against nothing: %+v", rules)
	}
}

// TestHostile searches in packets with wrong lengths, flipped bits and truncated frames. Every rule must be valid. Its figures must equal those of
// ir.Eval.
func TestHostile(t *testing.T) {
	t.Parallel()
	r := testutil.Random(t)
	frames := func(n int, hints packet.Hints) (list []suggest.Sample) {
		for range n {
			frame := packet.Random(r, hints)
			kept := len(frame) - r.IntN(2)*r.IntN(len(frame))
			if s := suggest.NewSample(sample.Sample{Frame: frame[:kept], Length: len(frame)}); s.Kind == packet.IP {
				list = append(list, s)
			}
		}
		return list
	}
	found := 0
	for range 6 {
		var hints packet.Hints
		hints.Names, hints.Texts = []string{`a\034b.example`, "evil.example"}, [][]byte{[]byte("\"|\\: {x}"), {0, 1, 2, 3}}
		hints.Values[packet.DPort] = []uint32{packet.PortUDP + 53, 80}
		attack, good := frames(1500, hints), frames(1000, packet.Hints{})
		for _, baseline := range [][]suggest.Sample{good, nil} {
			result, err := suggest.Find(suggest.Input{Program: &ir.Program{}, Attack: attack, Good: baseline, Collateral: 0.01})
			check(t, err)
			for _, rule := range result.Rules {
				found++
				if n := matches(t, rule, attack); n != rule.Coverage.Packets || n == 0 {
					t.Errorf("%s matches %d packets, not %d", rule.Text, n, rule.Coverage.Packets)
				}
				if (rule.Collateral == nil) != (baseline == nil) || baseline != nil && rule.Collateral.Packets > len(good)/100 {
					t.Errorf("%s: collateral %+v", rule.Text, rule.Collateral)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no rule was found: the test shows nothing")
	}
}

// TestPolicy checks that no rule is suggested against packets that a policy already drops. It also checks the existing rule that a new rule must
// precede.
func TestPolicy(t *testing.T) {
	t.Parallel()
	r := testutil.Random(t)
	udp := func(port uint32) []ir.Match {
		return []ir.Match{{Field: packet.SPort, Values: []ir.Range{{First: packet.PortUDP + port, Last: packet.PortUDP + port}}}}
	}
	program := &ir.Program{Rules: []ir.Rule{
		{Name: "ntp", Match: udp(123), Verdict: ir.Drop}, {Name: "clients", Match: udp(4500)}, {Name: "all"},
	}}
	attack := packets(1000, func() string { return vectors[0].line(r) })
	attack = append(attack, packets(500, func() string { return fmt.Sprintf("udp %s:4500 > 10.10.10.10:%d len=232", anywhere(r), r.IntN(65536)) })...)
	result, err := suggest.Find(suggest.Input{Program: program, Attack: attack, Collateral: 0.001, Taken: map[string]bool{"suggested-1": true}})
	check(t, err)
	if result.Passed != 500 || len(result.Dropped) != 1 || result.Dropped[0] != (suggest.Reason{Name: "ntp", Packets: 1000}) {
		t.Errorf("%+v", result)
	}
	if len(result.Rules) != 1 || result.Rules[0].Before != "clients" || result.Rules[0].Name != "suggested-1-2" {
		t.Errorf("%+v, want one rule before clients", result.Rules)
	}
}
