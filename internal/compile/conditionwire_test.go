// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// conditionTests are policies with packets. The limits are so slow that no burst is refilled during the test. `N x` before a packet sends it N times.
// Both targets must count as Eval and ir.Limiter do. If a target must reject the policy, refused is the key that it reports.
var conditionTests = []struct {
	name, rules, packets string
	refused              map[plan.Target]string
}{
	{name: "for all", rules: `
  - {name: udp, family: ipv4, proto: udp, over: {rate: 10/day, burst: 7}, then: drop}`, packets: `
20 x udp 192.0.2.1:5 > 198.51.100.1:53
3 x udp 192.0.2.2:5 > 198.51.100.1:53
3 x tcp 192.0.2.1:5 > 198.51.100.1:53 S`},
	{name: "for both families", rules: `
  - {name: udp, proto: udp, over: {rate: 10/day, burst: 7}, then: drop}`, packets: `
5 x udp 192.0.2.1:5 > 198.51.100.1:53
5 x udp [2606::1]:5 > [2606::99]:53`, refused: map[plan.Target]string{plan.TargetIptables: "over"}},
	{name: "by prefix of the source", rules: `
  - {name: nets, proto: udp, over: {rate: 10/day, per: from/16/48, burst: 5}, then: drop}`, packets: `
4 x udp 192.0.2.1:5 > 198.51.100.1:53
4 x udp 192.0.3.1:5 > 198.51.100.1:53
8 x udp 192.1.2.1:5 > 198.51.100.1:53
3 x udp [2606::1]:5 > [2606::99]:53
3 x udp [2606:0:0:1::1]:5 > [2606::99]:53
3 x udp [2606:0:1::1]:5 > [2606::99]:53
1 x udp 192.0.4.1:5 > 198.51.100.1:53`},
	{name: "by source and destination", rules: `
  - {name: pairs, proto: udp, over: {rate: 10/day, per: [from/24, to/32/128], burst: 3}, then: drop}`, packets: `
4 x udp 192.0.2.1:5 > 198.51.100.1:53
4 x udp 192.0.2.9:5 > 198.51.100.1:54
4 x udp 192.0.2.1:5 > 198.51.100.255:53
4 x udp [2606::1]:5 > [2606::99]:53`},
	{name: "layers", rules: `
  - name: layers
    over: [{rate: 10/day, per: from, burst: 4}, {rate: 10/day, per: from/24, burst: 6}, {rate: 20/day, per: from/8, burst: 11}]
    proto: udp
    then: drop`, packets: `
6 x udp 192.0.2.1:5 > 198.51.100.1:53
6 x udp 192.0.2.2:5 > 198.51.100.1:53
6 x udp 192.0.3.2:5 > 198.51.100.1:53
6 x udp 192.0.4.2:5 > 198.51.100.1:53
6 x udp 192.0.2.1:5 > 198.51.100.1:53`},
	{name: "several ways to match", rules: `
  - {name: ways, from: [$a, $b, $c], port: [udp/53, tcp/53], over: {rate: 10/day, per: to/8, burst: 5}, then: drop}`, packets: `
4 x udp 192.0.2.1:5 > 198.51.100.1:53
4 x tcp 192.0.2.1:5 > 198.51.100.1:53 S
4 x udp 192.0.3.1:5 > 198.51.100.1:53`},
	{name: "observed", rules: `
  - {name: seen, from: [$a, $b, $c], proto: udp, then: drop, observe: true}
  - {name: over, from: [$a, $b], proto: udp, over: {rate: 10/day, per: from, burst: 2}, then: drop}
  - {name: over-seen, from: [$a, $b], proto: udp, over: [{rate: 10/day, burst: 1, per: from/8}, {rate: 10/day, burst: 1, per: from/9}], then: drop, observe: true}
  - {name: rest, proto: udp, then: drop}`, packets: `
5 x udp 192.0.2.1:5 > 198.51.100.1:53
3 x tcp 192.0.2.1:5 > 198.51.100.1:53 S`, refused: map[plan.Target]string{plan.TargetIptables: "over"}},
	{name: "observed for all", rules: `
  - {name: seen, from: [$a, $b, $c], then: drop, observe: true}
  - {name: one, from: 192.0.2.1, then: pass, observe: true}
  - {name: over-seen, family: ipv4, from: [$a, $b], over: [{rate: 10/day, burst: 2}, {rate: 10/day, burst: 1}], then: drop, observe: true}
  - {name: rest, proto: udp, then: drop}`, packets: `
5 x udp 192.0.2.1:5 > 198.51.100.1:53
3 x tcp 192.0.2.1:5 > 198.51.100.1:53 S`},
	{name: "what exceeds passes", rules: `
  - {name: much, family: ipv4, proto: udp, over: {rate: 10/day, burst: 3}, then: pass}
  - {name: little, proto: udp, then: drop}`, packets: `
5 x udp 192.0.2.1:5 > 198.51.100.1:53`},
	{name: "what exceeds passes, in several ways", rules: `
  - {name: much, family: ipv4, from: [$a, $b], proto: udp, over: {rate: 10/day, burst: 3}, then: pass}
  - {name: little, proto: udp, then: drop}`, packets: `
5 x udp 192.0.2.1:5 > 198.51.100.1:53`, refused: map[plan.Target]string{plan.TargetIptables: "over"}},
	{name: "bits", rules: `
  - {name: bits, proto: udp, over: {rate: 80kbit/s, per: from, burst: 120kbit}, then: drop}`, packets: `
40 x udp 192.0.2.1:5 > 198.51.100.1:53 len=1500
3 x udp 192.0.2.2:5 > 198.51.100.1:53 len=29`, refused: map[plan.Target]string{plan.TargetIptables: "over"}},
	{name: "observed checks", rules: `
  - {name: rest, proto: udp, then: drop}
checks: {profile: off, port-zero: observe, udp-source-zero: observe, bogon-source: observe, tcp-flags: on}`, packets: `
udp 192.0.2.1:0 > 198.51.100.1:0
udp 11.0.2.1:0 > 198.51.100.1:0
udp 11.0.2.1:0 > 198.51.100.1:7
udp 11.0.2.1:9 > 198.51.100.1:7
tcp 11.0.2.1:0 > 198.51.100.1:7 SF
tcp 11.0.2.1:0 > 198.51.100.1:7 S
udp [fc00::1]:5 > [2606::99]:0
udp [fe80::1]:5 > [2606::99]:7`},
	{name: "ports but for one", rules: `
  - {name: tcp, proto: tcp, not: {port: 443, sport: 5}, then: drop}
  - {name: both, not: {port: 444, sport: 6, proto: icmp}, then: drop}`, packets: `
tcp 192.0.2.1:7 > 198.51.100.1:442 S
tcp 192.0.2.1:7 > 198.51.100.1:443 S
tcp 192.0.2.1:5 > 198.51.100.1:442 S
tcp 192.0.2.1:5 > 198.51.100.1:443 S
udp [2606::1]:6 > [2606::99]:443
udp [2606::1]:6 > [2606::99]:444
udp [2606::1]:5 > [2606::99]:444
udp [2606::1]:5 > [2606::99]:443`},
	{name: "payload at", rules: `
  - {name: first, proto: [udp, tcp], payload: {at: {offset: 0, bytes: "|de ad be ef|"}}, then: drop}
  - {name: two, port: udp/53, payload: {at: [{offset: 4, bytes: "ab"}, {offset: 9, bytes: "|01|", mask: "|0f|"}]}, then: drop}
  - {name: header, payload: {at: {offset: 1, bytes: "|09 00|", from: header}}, then: drop}
  - {name: long, payload: {at: {offset: 3, bytes: "0123456789abcdef"}}, then: drop}
  - {name: without, proto: udp, port: udp/99, not: {payload: {at: [{offset: 0, bytes: "x"}, {offset: 6, bytes: "y"}]}}, then: drop}`, packets: `
udp 192.0.2.1:5 > 198.51.100.1:53 payload=0xdeadbeef
udp 192.0.2.1:5 > 198.51.100.1:53 payload=0xdeadbe
tcp 192.0.2.1:5 > 198.51.100.1:53 PA payload=0xdeadbeef
tcp 192.0.2.1:5 > 198.51.100.1:53 PA payload=0xdeadbeef tcpopts=mss:1460,nop,nop
tcp 192.0.2.1:5 > 198.51.100.1:53 PA payload=0x00deadbeef
tcp [2606::1]:5 > [2606::99]:53 PA payload=0xdeadbeef tcpopts=mss:1460,nop,nop
udp [2606::1]:5 > [2606::99]:53 payload=0xdeadbeef
udp 192.0.2.1:5 > 198.51.100.1:53 payload=0xdeadbeef ipopts=0x01010100
udp 192.0.2.1:5 > 198.51.100.1:53 payload="xxxxabxxx|f1|"
udp 192.0.2.1:5 > 198.51.100.1:53 payload="xxxxabxxx|f2|"
udp 192.0.2.1:5 > 198.51.100.1:53 payload="xxxxabxxx"
udp 192.0.2.1:9 > 198.51.100.1:1
tcp [2606::1]:9 > [2606::99]:1 S
icmp 192.0.2.1 > 198.51.100.1 echo-request payload="xxx0123456789abcdefx"
icmpv6 [2606::1] > [2606::99] echo-request payload="xxx0123456789abcdef"
udp [2606::1]:5 > [2606::99]:54 payload="xxx0123456789abcdef"
gre 192.0.2.1 > 198.51.100.1 payload="xxx0123456789abcdef"
gre 192.0.2.1 > 198.51.100.1 payload="xxx0123456789abcde"
udp 192.0.2.1:5 > 198.51.100.1:99 payload="xxxxxxy"
udp 192.0.2.1:5 > 198.51.100.1:99 payload="xxxxxx"
udp 192.0.2.1:5 > 198.51.100.1:99
udp [2606::1]:5 > [2606::99]:99 payload="x.....y"
udp [2606::1]:5 > [2606::99]:99 payload="......y"`},
	{name: "payload contains", rules: `
  - {name: words, proto: udp, payload: {contains: ["evil.example", "|00 01 02|"], within: 20}, then: drop}
  - {name: blind, proto: udp, payload: {contains: "abc", nocase: true}, then: drop}
  - {name: without, proto: udp, port: udp/99, not: {payload: {contains: [one, two]}}, then: drop}
  - {name: both, proto: udp, payload: {contains: end, at: {offset: 0, bytes: "b"}}, then: drop}`, packets: `
udp 192.0.2.1:5 > 198.51.100.1:53 payload="evil.example"
udp 192.0.2.1:5 > 198.51.100.1:53 payload="xxxxxxxxevil.example"
udp 192.0.2.1:5 > 198.51.100.1:53 payload="xxxxxxxxxevil.example"
udp [2606::1]:5 > [2606::99]:53 payload="xxxxxxxxevil.example"
udp [2606::1]:5 > [2606::99]:53 payload="xxxxxxxxxevil.example"
udp 192.0.2.1:5 > 198.51.100.1:53 payload="..|00 01 02|"
tcp 192.0.2.1:5 > 198.51.100.1:53 PA payload="evil.example"
udp 192.0.2.1:5 > 198.51.100.1:53 payload="....aBC"
udp [2606::1]:5 > [2606::99]:53 payload="ABc"
udp 192.0.2.1:5 > 198.51.100.1:99 payload="one"
udp 192.0.2.1:5 > 198.51.100.1:99 payload="on"
udp 192.0.2.1:5 > 198.51.100.1:99
udp [2606::1]:5 > [2606::99]:99 payload="....two"
udp [2606::1]:5 > [2606::99]:99 payload="....tow"
udp 192.0.2.1:5 > 198.51.100.1:1 payload="b  end"
udp 192.0.2.1:5 > 198.51.100.1:1 payload="a  end"`, refused: map[plan.Target]string{plan.TargetNftables: "payload: contains"}},
}

const conditionSets = `
sets: {a: [192.0.2.0/24], b: [192.0.0.0/16], c: {dynamic: true, max: 10}}
rules:`

// TestConditionCounts checks how both targets count packets that match rules with limits and payload tests, and rules that only count.
func TestConditionCounts(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	w := subject.NewIptWire(t)
	for _, tt := range conditionTests {
		s := subject.Lower(t, conditionSets+tt.rules)
		frames := repeated(t, tt.packets)
		for _, c := range counters(w) {
			what := fmt.Sprintf("%s, %s", tt.name, c.name)
			names, err := c.load(t, s)
			var refused *plan.StageError
			if key := tt.refused[c.target]; key != "" {
				if !errors.As(err, &refused) || refused.Key != key || refused.Hint() == "" {
					t.Errorf("%s: %v, want %s refused", what, err, key)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			want := s.CountsOf(frames, names)
			for _, f := range frames {
				if !w.Send(f) {
					t.Fatalf("%s: %x is not sent", what, f)
				}
			}
			if got := c.read(t, total(want)); !maps.Equal(got, want) {
				t.Errorf("%s: counters %v, want %v\n%s", what, got, want, c.show())
			}
			c.remove(t)
		}
	}
}

// TestLimitRefills checks a limit of 200/s with a burst of 20 packets. The burst must pass at once. Later, as many packets as the rate allows must
// pass. The bucket is full after a tenth of a second. So a sender that a busy machine delays for longer does not get more.
func TestLimitRefills(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	w := subject.NewIptWire(t)
	s := subject.Lower(t, conditionSets+"\n  - {name: fast, proto: udp, over: {rate: 200/s, per: from/24, burst: 20}, then: drop}")
	frame := subject.FramesOf(t, "udp 192.0.2.1:5 > 198.51.100.1:53")[0].Frame
	for _, c := range counters(w) {
		const sent, tries = 600, 20
		for try := 1; ; try++ {
			names, err := c.load(t, s)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			last, tokens, least := began, 20.0, 0.0
			for range sent {
				w.Send(frame)
				now := time.Now()
				last, tokens = now, min(20, tokens+200*now.Sub(last).Seconds())
				if tokens >= 1 {
					tokens, least = tokens-1, least+1
				}
				time.Sleep(500 * time.Microsecond)
			}
			elapsed := time.Since(began)
			got := c.read(t, sent)
			c.remove(t)
			passed := float64(got[names(ir.Reason{Kind: ir.ReasonDefault})])
			most := 20 + 200*elapsed.Seconds()
			if int(passed)+got[names(ir.Reason{Kind: ir.ReasonRule})] != sent {
				t.Errorf("%s: %v passed in %v, want %.1f to %.1f; counters %v", c.name, passed, elapsed, least, most, got)
			}
			if passed >= least*0.95-1 && passed <= most+1 {
				break
			}
			if try == tries { // if the receiver must wait for a CPU, it gets packets late and in bursts, and the last ones after this end has sent all
				t.Errorf("%s: %v passed in %v, want %.1f to %.1f; counters %v", c.name, passed, elapsed, least, most, got)
				break
			}
		}
	}
}

// repeated parses packets, one per line. A line may begin with the number of times that its packet is sent.
func repeated(t *testing.T, lines string) (frames [][]byte) {
	for line := range strings.Lines(lines) {
		times := 1
		if number, rest, ok := strings.Cut(line, " x "); ok {
			times, _ = strconv.Atoi(number)
			line = rest
		}
		for _, f := range subject.FramesOf(t, line) {
			frames = append(frames, slices.Repeat([][]byte{f.Frame}, times)...)
		}
	}
	return frames
}

func total(counts map[string]int) (n int) {
	for _, v := range counts {
		n += v
	}
	return n
}

// counter is a tool that loads a policy for a target and reads its counters.
type counter struct {
	name   string
	target plan.Target
	load   func(*testing.T, *subject.Subject) (name func(ir.Reason) string, err error)
	read   func(t *testing.T, awaited int) map[string]int
	remove func(*testing.T)
	show   func() string
}

func counters(w *subject.IptWire) []counter {
	return []counter{nftCounter(), iptCounter(w, "nft"), iptCounter(w, "legacy")}
}

func nftCounter() counter {
	var x *nftables.Ruleset
	return counter{
		name: "nftables", target: plan.TargetNftables,
		load: func(t *testing.T, s *subject.Subject) (func(ir.Reason) string, error) {
			var err error
			if x, err = subject.ToNftables(s.Program, ""); err != nil {
				return nil, err
			}
			subject.Nft(t, x.Script, "-f", "-")
			return subject.NamesOf(x.Checks, x.Rules, x.Default), nil
		},
		read: func(t *testing.T, awaited int) map[string]int {
			out := map[string]int{}
			for name, n := range subject.Settled(t, x.Table, awaited) {
				out[name] = int(n)
			}
			return out
		},
		remove: func(t *testing.T) { subject.Nft(t, "", "delete", "table", "inet", x.Table) },
		show:   func() string { return x.Script },
	}
}

func iptCounter(w *subject.IptWire, backend string) counter {
	var x *iptables.Ruleset
	var s *subject.Subject
	return counter{
		name: "iptables-" + backend, target: plan.TargetIptables,
		load: func(t *testing.T, of *subject.Subject) (func(ir.Reason) string, error) {
			var err error
			if x, err = subject.ToIptables(of.Program); err != nil {
				return nil, err
			}
			s, w.Backend = of, backend
			w.Restore(t, s, x)
			return subject.NamesOf(x.Checks, x.Rules, x.Default), nil
		},
		read:   func(t *testing.T, awaited int) map[string]int { return w.Counts(t, s, awaited) },
		remove: func(t *testing.T) { w.Remove(t, s) },
		show:   func() string { return x.Script() },
	}
}
