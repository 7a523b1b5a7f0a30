// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// limited is a loaded program with one rule for each limit. The rule drops packets to UDP port 1000 plus the limit's number that exceed the limit.
type limited struct {
	*datapath.Program
	program *ir.Program
}

func loadLimits(t *testing.T, limits ...ir.Limit) *limited {
	t.Helper()
	program := &ir.Program{Limits: limits}
	for i := range limits {
		program.Rules = append(program.Rules, ir.Rule{
			Name: fmt.Sprint(i), Verdict: ir.Drop, Over: []int{i},
			Match: []ir.Match{{Field: packet.DPort, Values: []ir.Range{{First: limitPort(i), Last: limitPort(i)}}}},
		})
	}
	return loadLimited(t, program)
}

// limitPort returns the port of a limit as a value of packet.DPort.
func limitPort(limit int) uint32 { return packet.PortUDP + 1000 + uint32(limit) }

func loadLimited(t *testing.T, program *ir.Program) *limited {
	t.Helper()
	x, err := xdpgen.Generate(program, xdpgen.Options{Form: xdpgen.Straight, QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	testutil.RequireRoot(t)
	return &limited{(&subject.Subject{Program: program}).Load(t, x), program}
}

// over charges a packet to a limit at a time. It reports whether the packet exceeds the limit.
func (l *limited) over(t *testing.T, frame []byte, now time.Duration) bool {
	t.Helper()
	a, err := l.AskAt(datapath.Question{Frame: frame, Now: now, Charge: true})
	if err != nil {
		t.Fatal(err)
	}
	return ir.Verdict(a.Verdict) == ir.Drop
}

// limitFrame returns a packet to the port of a limit, of length bytes including the IP header.
func limitFrame(t testing.TB, limit int, src, dst string, length int) []byte {
	t.Helper()
	to := netip.AddrPortFrom(netip.MustParseAddr(dst), uint16(1000+limit))
	from := netip.AddrPortFrom(netip.MustParseAddr(src), 5)
	return subject.FramesOf(t, fmt.Sprintf("udp %s > %s len=%d", from, to, length))[0].Frame
}

// from returns a copy of a frame with another source.
func from(frame []byte, src netip.Addr) []byte {
	frame = bytes.Clone(frame)
	if src.Is4() {
		copy(frame[14+12:], src.AsSlice())
	} else {
		copy(frame[14+8:], src.AsSlice())
	}
	return frame
}

// perHost returns a limit by single IPv4 addresses and by IPv6 /64 prefixes.
func perHost(rate uint64, per time.Duration, burst uint64) ir.Limit {
	return ir.Limit{Rule: "test", Rate: rate, Per: per, Burst: burst, Src: &ir.Prefixes{V4: 32, V6: 64}, Max: 1000}
}

const day = 24 * time.Hour

// TestLimitPrefixes uses up a limit from one address, and checks which other addresses then exceed it.
func TestLimitPrefixes(t *testing.T) {
	for _, test := range []struct {
		name     string
		src, dst *ir.Prefixes
		over     string // pairs of addresses
		not      string
	}{
		{"one for all", nil, nil, "10.1.2.3>192.0.2.1 8.8.8.8>192.0.2.9 2001:db8::1>2001:db8::2 ::ffff:10.1.2.3>2001:db8::2", ""},
		{"from", &ir.Prefixes{V4: 32, V6: 64}, nil, "10.1.2.3>192.0.2.1 10.1.2.3>192.0.2.9",
			"10.1.2.2>192.0.2.1 11.1.2.3>192.0.2.1 ::ffff:10.1.2.3>2001:db8::2 ::ffff:0:0>2001:db8::2"},
		{"from/16", &ir.Prefixes{V4: 16, V6: 56}, nil, "10.1.2.3>192.0.2.1 10.1.255.255>8.8.8.8 10.1.0.0>8.8.8.8", "10.0.2.3>192.0.2.1 10.2.0.0>8.8.8.8"},
		{"from/0", &ir.Prefixes{V4: 0, V6: 0}, nil, "10.1.2.3>192.0.2.1 255.1.2.3>8.8.8.8", "::ffff:10.1.2.3>2001:db8::2"},
		{"to/24", nil, &ir.Prefixes{V4: 24, V6: 64}, "8.8.8.8>192.0.2.255 10.1.2.3>192.0.2.0", "10.1.2.3>192.0.3.1 10.1.2.3>192.0.1.255"},
		{"both", &ir.Prefixes{V4: 16, V6: 64}, &ir.Prefixes{V4: 32, V6: 128}, "10.1.9.9>192.0.2.1", "10.1.2.3>192.0.2.2 10.2.2.3>192.0.2.1 192.0.2.1>10.1.2.3"},
	} {
		l := loadLimits(t, ir.Limit{Rate: 1, Per: day, Burst: 5, Src: test.src, Dst: test.dst})
		l.exhaust(t, limitFrame(t, 0, "10.1.2.3", "192.0.2.1", 60), 5, time.Hour)
		l.pairs(t, test.name, test.over, true)
		l.pairs(t, test.name, test.not, false)
	}
}

// TestLimitPrefixes6 does the same as TestLimitPrefixes, for IPv6.
func TestLimitPrefixes6(t *testing.T) {
	for length, want := range map[int]struct{ over, not string }{
		128: {"2001:db8:1:2::3>2001:db8::1", "2001:db8:1:2::2>2001:db8::1"},
		64:  {"2001:db8:1:2:ffff::3>2001:db8::1", "2001:db8:1:3::3>2001:db8::1"},
		56:  {"2001:db8:1:f2::3>2001:db8::1", "2001:db8:1:102::3>2001:db8::1 2001:db8:2:2::3>2001:db8::1"},
		32:  {"2001:db8:ffff:2::3>2001:db8::1", "2001:db9:1:2::3>2001:db8::1 10.1.2.3>192.0.2.1"},
	} {
		l := loadLimits(t, ir.Limit{Rate: 1, Per: day, Burst: 5, Src: &ir.Prefixes{V4: 32, V6: length}})
		l.exhaust(t, limitFrame(t, 0, "2001:db8:1:2::3", "2001:db8::1", 60), 5, time.Hour)
		l.pairs(t, fmt.Sprint(length), want.over, true)
		l.pairs(t, fmt.Sprint(length), want.not, false)
	}
}

// exhaust sends burst packets, which pass, and then one packet that exceeds the limit.
func (l *limited) exhaust(t *testing.T, frame []byte, burst int, now time.Duration) {
	t.Helper()
	for i := range burst {
		if l.over(t, frame, now) {
			t.Fatalf("packet %d of a burst of %d is over the limit", i+1, burst)
		}
	}
	if !l.over(t, frame, now) {
		t.Fatalf("packet %d is not over the limit, whose burst is %d", burst+1, burst)
	}
}

// pairs asks the program about a packet from the first address of each pair to the second. Nothing is charged.
func (l *limited) pairs(t *testing.T, name, pairs string, want bool) {
	t.Helper()
	for _, pair := range strings.Fields(pairs) {
		src, dst, _ := strings.Cut(pair, ">")
		a, err := l.AskAt(datapath.Question{Frame: limitFrame(t, 0, src, dst, 60), Now: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if got := ir.Verdict(a.Verdict) == ir.Drop; got != want {
			t.Errorf("%s: %s is over the limit: %t, want %t", name, pair, got, want)
		}
	}
}

// TestLimitQuestion checks that questions charge nothing, even if the bucket has not been used for a long time.
func TestLimitQuestion(t *testing.T) {
	l := loadLimits(t, perHost(1, time.Second, 5))
	frame := limitFrame(t, 0, "10.1.2.3", "192.0.2.1", 60)
	ask := func(now time.Duration) ir.Verdict {
		a, err := l.AskAt(datapath.Question{Frame: frame, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return ir.Verdict(a.Verdict)
	}
	for _, now := range []time.Duration{time.Hour, time.Hour + time.Minute, 50 * day, 50*day + time.Second} {
		for range 10 {
			if ask(now) != ir.Pass {
				t.Fatalf("at %v a question is over the limit, of which nothing is used", now)
			}
		}
	}
	l.exhaust(t, frame, 5, 50*day+time.Second)
	for after, want := range map[time.Duration]ir.Verdict{0: ir.Drop, 999 * time.Millisecond: ir.Drop, 1001 * time.Millisecond: ir.Pass, 400 * day: ir.Pass} {
		if got := ask(50*day + time.Second + after); got != want {
			t.Errorf("%v after the burst the answer is %v, want %v", after, got, want)
		}
	}
}

// TestLimitLayers checks two limits. A packet that exceeds the first limit must not be charged to the second.
func TestLimitLayers(t *testing.T) {
	l := loadLimited(t, &ir.Program{
		Limits: []ir.Limit{perHost(1, time.Second, 5), {Rate: 10, Per: time.Second, Burst: 20}},
		Rules:  []ir.Rule{{Name: "layers", Verdict: ir.Drop, Over: []int{0, 1}}},
	})
	r, _ := subject.Seeded(t)
	model := ir.NewLimiter(l.program)
	now, passed := time.Hour, 0
	for i := range 3000 {
		frame := from(limitFrame(t, 0, "10.0.0.0", "192.0.2.1", 60), netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(30))}))
		pkt := packet.Decode(frame)
		want, _ := l.program.Eval(&pkt, ir.World{Over: func(limit int, pkt *packet.Packet) bool { return model.Over(limit, pkt, now) }})
		if got := l.over(t, frame, now); got != (want == ir.Drop) {
			t.Fatalf("packet %d, from %v at %v, is over a limit: %t, want %v", i, pkt.Src, now, got, want)
		}
		if want == ir.Pass {
			passed++
		}
		now += time.Duration(r.IntN(20)) * 1001 * time.Microsecond
	}
	if passed < 250 || passed > 2000 {
		t.Errorf("%d of 3000 packets passed: the test compares too little", passed)
	}
}

// TestLimitRefused checks the errors for limits that the tables cannot represent.
func TestLimitRefused(t *testing.T) {
	for want, limit := range map[string]ir.Limit{
		`rule "slow": at this rate a burst of 1000000 would take more than 73 years to be paid off`: {Rate: 1, Per: day, Burst: 1e6},
		`rule "slow": the limit shall hold 100000000 prefixes, at most 50331648 fit`:                {Rate: 1, Per: day, Burst: 5, Max: 1e8},
	} {
		limit.Rule = "slow"
		_, err := xdpgen.Generate(&ir.Program{Limits: []ir.Limit{limit}, Rules: []ir.Rule{{Name: "slow", Over: []int{0}}}}, xdpgen.Options{})
		if err == nil || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}

// TestLimitVerifier checks that the verifier processes the code of limits only once, however many rules have limits.
func TestLimitVerifier(t *testing.T) {
	testutil.RequireRoot(t)
	cost := map[int]int{}
	for _, rules := range []int{1, 2, 40} {
		program := &ir.Program{}
		for i := range rules {
			program.Limits = append(program.Limits, perHost(1000, time.Second, 2000))
			program.Rules = append(program.Rules, ir.Rule{Name: fmt.Sprint(i), Verdict: ir.Drop, Over: []int{i}})
		}
		x, err := xdpgen.Generate(program, xdpgen.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cost[rules] = processed(t, x)
	}
	program := &ir.Program{Rules: []ir.Rule{{Name: "none", Verdict: ir.Drop}}}
	x, err := xdpgen.Generate(program, xdpgen.Options{})
	if err != nil {
		t.Fatal(err)
	}
	none := processed(t, x)
	t.Logf("instructions processed: %d without a limit, %v by rules with limits", none, cost)
	if first := cost[1] - none; first > 20_000 {
		t.Errorf("a limit costs the verifier %d instructions, want at most 20,000", first)
	}
	if each := (cost[40] - cost[2]) / 38; each > 600 { // the entry has a section for each of six protocols, with the hash of the limit's prefixes
		t.Errorf("each further rule with a limit costs the verifier %d instructions, want at most 600", each)
	}
}
