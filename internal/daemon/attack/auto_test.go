// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
)

func sampleOf(t *testing.T, text string) suggest.Sample {
	t.Helper()
	spec, err := packet.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	frame := spec.Frame()
	return suggest.NewSample(sample.Sample{Frame: frame, Length: len(frame)})
}

// autoTest contains automatic rules, with a baseline of clients and with a simulated clock. The kernel's clock does not advance with that clock, so
// the rules do not end by the kernel's clock.
type autoTest struct {
	*testing.T
	*automatic
	now    time.Time
	bounds policy.Auto
	open   []datapath.Connection
	known  map[netip.Addr]bool
}

func newAutoTest(t *testing.T) *autoTest {
	known := map[netip.Addr]bool{}
	for i := range 200 {
		known[netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})] = true
	}
	return &autoTest{t, newAutomatic(), time.Now(), policy.Auto{Collateral: 0.001, For: time.Minute, Max: 2}, nil, known}
}

// rule returns a suggested rule that matches harmed of 5000 legitimate samples.
func rule(port, harmed int) suggest.Rule {
	return ruleOf(fmt.Sprintf("sport: udp/%d", port), harmed)
}

// ruleOf returns a suggested rule with keys in the policy's notation.
func ruleOf(keys string, harmed int) suggest.Rule {
	signature, _, err := suggest.ReadSignature("{name: suggested-1, " + keys + ", observe: true, then: drop}")
	if err != nil {
		panic(err)
	}
	return suggest.Rule{Signature: signature, Coverage: suggest.ShareOf(90, 100), Collateral: &suggest.Harm{Share: suggest.ShareOf(harmed, 5000)}}
}

func (a *autoTest) connections() ([]datapath.Connection, error) { return a.open, nil }

// unfit calls the method unfit of a Watcher that knows no service.
func (a *autoTest) unfit(s *suggest.Signature) string {
	w := &Watcher{traffic: newTraffic(0, 0)}
	return cmp.Or(w.unfit(s), connections(a.connections).cuts(s))
}

// conditions returns the conditions of a Watcher that knows nothing more about a rule.
func (a *autoTest) conditions() conditions {
	return conditions{
		bounds: a.bounds, unfit: a.unfit,
		bound:  func(*suggest.Signature) string { return "" },
		fits:   func(*suggest.Signature) (suggest.Rule, bool) { return suggest.Rule{}, false },
		proven: func(*suggest.Signature) bool { return false },
	}
}

func (a *autoTest) propose(rules ...suggest.Rule) (names []string) {
	a.Helper()
	a.automatic.propose(rules, a.conditions(), a.now)
	for _, r := range a.rules {
		names = append(names, r.Name)
		r.step, r.Ends = nil, 0
	}
	return names
}

// second plays the samples of a second, and then judges the rules. It returns the actions on the rules.
func (a *autoTest) second(there map[string]bool, packets ...string) (did []string) {
	a.Helper()
	for _, p := range packets {
		s := sampleOf(a.T, p)
		from := stranger
		if a.known[s.Sender()] {
			from = known
		}
		s.Time = a.now
		a.see(&seen{Sample: s, standing: from})
	}
	a.now = a.now.Add(time.Second)
	if there == nil {
		there = map[string]bool{}
		for _, r := range a.rules {
			there[r.Name] = true
		}
	}
	a.review(a.now, a.now, a.bounds, there, a.connections)
	for _, r := range a.rules {
		if r.step != nil {
			did = append(did, r.step.Did)
			r.step, r.Ends = nil, 0
		}
	}
	for range a.gone {
		did = append(did, Removed)
	}
	a.gone = nil
	return did
}

const (
	flood  = "udp 198.51.100.7:123 > 192.0.2.1:9 len=468"
	client = "udp 203.0.113.7:4000 > 192.0.2.1:53 len=80"
)

// TestAutomaticBounds proposes rules. Rules above the maximum number, without a baseline, or with uncertain harm must not be added.
func TestAutomaticBounds(t *testing.T) {
	a := newAutoTest(t)
	unknown := rule(4, 0)
	unknown.Collateral = nil
	if got := a.propose(unknown, rule(4000, 5), rule(5, 2)); got != nil { // 2 of 5000 are 0.04%, but up to 0.15% of all such traffic
		t.Errorf("taken: %v", got)
	}
	if got := a.propose(rule(123, 0), rule(123, 0), rule(19, 0), rule(17, 0)); !slices.Equal(got, []string{"auto-1", "auto-2"}) {
		t.Errorf("taken: %v", got)
	}
}

// TestAutomaticLife checks that rules observe, drop, are extended and are removed, according to live samples.
func TestAutomaticLife(t *testing.T) {
	many := func(n int, packets ...string) []string { return slices.Repeat(packets, n) }
	steps := func(a *autoTest, seconds int, packets ...string) (did []string) {
		for range seconds {
			did = append(did, a.second(nil, packets...)...)
		}
		return did
	}
	a := newAutoTest(t)
	a.propose(rule(123, 0))
	if got := steps(a, 1, many(20, flood, client)...); got != nil {
		t.Errorf("before it is known: %v", got)
	}
	if got := steps(a, 50, many(20, flood, client)...); !slices.Equal(got, []string{Drops, Extended}) {
		t.Errorf("the attack goes on: %v", got)
	}
	if got := steps(a, 140, client); !slices.Equal(got, []string{Extended, Removed}) { // the rule still matched when it was last extended
		t.Errorf("it matches nothing any more: %v", got)
	}
	// Clients' packets begin to look like the attack: the rule must be removed, and must not be added again.
	a = newAutoTest(t)
	a.propose(rule(123, 0))
	steps(a, 6, many(20, flood, client)...)
	if got := steps(a, 1, many(20, "udp 203.0.113.7:123 > 192.0.2.1:9 len=468")...); !slices.Equal(got, []string{Removed}) {
		t.Errorf("it harms clients: %v", got)
	}
	if got := a.propose(rule(123, 0)); got != nil {
		t.Errorf("it comes again: %v", got)
	}
	// A rule must never drop when it matches clients while it observes, or when it matches hardly anything.
	for _, packets := range [][]string{many(20, flood, "udp 203.0.113.9:123 > 192.0.2.1:9 len=468"), many(30, client)} {
		a = newAutoTest(t)
		a.propose(rule(123, 0))
		if got := steps(a, 40, packets...); !slices.Equal(got, []string{Removed}) {
			t.Errorf("with %s: %v", packets[0], got)
		}
	}
	// A person removes the rule.
	a = newAutoTest(t)
	a.propose(rule(123, 0))
	steps(a, 2, many(30, flood, client)...)
	if got := a.second(map[string]bool{}, flood); !slices.Equal(got, []string{Removed}) || a.propose(rule(123, 0)) != nil {
		t.Errorf("a person removes it: %v", got)
	}
}

// TestAutomaticRestart starts another daemon with a rule that observes, as after a kill. The rule must drop only when the new daemon's live samples
// show that it matches. Otherwise the rule must be removed, at the latest at the end that the kernel has stored. A rule that drops must continue to
// drop.
func TestAutomaticRestart(t *testing.T) {
	for _, tt := range []struct {
		name    string
		seconds int // for which the earlier daemon ran
		packets []string
		want    []string // the actions of the next daemon within 31 s
		drops   bool     // whether the rule drops when the next daemon starts
	}{
		{"the attack goes on", 0, slices.Repeat([]string{flood, client}, 20), []string{Drops}, false},
		{"other traffic", 0, slices.Repeat([]string{client}, 30), []string{Removed}, false},
		{"nothing comes", 0, nil, []string{Removed}, false},
		{"it drops", 6, slices.Repeat([]string{flood, client}, 20), []string{Extended}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := newAutoTest(t)
			before.propose(rule(123, 0))
			for range tt.seconds {
				before.second(nil, slices.Repeat([]string{flood, client}, 20)...)
			}
			next := newAutoTest(t)
			next.now = before.now
			next.adopt([]manifest.Temporary{before.rules[0].Temporary}, next.now)
			if len(next.rules) != 1 || next.rules[0].drops() != tt.drops || next.rules[0].step != nil {
				t.Fatalf("taken up: %+v", next.rules)
			}
			var did []string
			for range 31 {
				did = append(did, next.second(nil, tt.packets...)...)
			}
			if !slices.Equal(did, tt.want) {
				t.Errorf("did %v, want %v", did, tt.want)
			}
			if tt.want[0] != Removed && !next.rules[0].Until.After(next.now) {
				t.Errorf("it ends %v, now %v", next.rules[0].Until, next.now)
			}
		})
	}
}

// TestAutomaticSparesTheUnproved proposes rules that may match honest packets, although the baseline contains no such packets: packets that a crowd
// of newcomers has in common, and possible segments of an open connection. An existing rule must be removed when a connection begins whose segments
// the rule can match.
func TestAutomaticSparesTheUnproved(t *testing.T) {
	open := func(client, server string) []datapath.Connection {
		return []datapath.Connection{{Client: netip.MustParseAddrPort(client), Server: netip.MustParseAddrPort(server)}}
	}
	upload := open("203.0.113.7:40000", "192.0.2.1:443")
	for _, tt := range []struct {
		keys  string
		open  []datapath.Connection
		taken bool
	}{
		{"from: 198.19.2.0/24, proto: udp", nil, false}, // newcomers of one network
		{"proto: udp, ttl: 116", nil, false},            // newcomers at the same distance
		{"proto: udp, ttl: 83-136, length: 60-80", nil, false},
		{"to: 192.0.2.1, port: udp/30120", nil, false}, // all clients of a service
		{`port: tcp/443, flags: "syn", ttl: 64`, nil, false},
		{`port: udp/30120, payload: {at: {offset: 0, bytes: "|de ad|"}}`, nil, true},
		{`port: udp/30120, payload: {at: {offset: 0, bytes: "|de ad|"}}`, upload, true},
		{`port: tcp/443, payload: {at: {offset: 0, bytes: "|de ad|"}}`, nil, false}, // a SYN can have data
		{`port: tcp/443, flags: "psh,ack/syn,psh,ack", payload: {at: {offset: 0, bytes: "|de ad|"}}`, nil, true},
		{`port: tcp/443, payload: {at: {offset: 0, bytes: "|de ad|"}}`, upload, false}, // other bytes of the connection may match later
		{`port: tcp/443, flags: "ack", payload: {at: {offset: 0, bytes: "|de ad|"}}`, upload, false},
		{`port: tcp/443, flags: "syn", payload: {at: {offset: 0, bytes: "|de ad|"}}`, upload, false}, // a SYN, with any payload
		{`port: tcp/80, flags: "ack/syn,ack", payload: {at: {offset: 0, bytes: "|de ad|"}}`, upload, true},
		{`from: 198.51.100.0/24, flags: "ack/syn,ack", port: tcp/443, payload: {at: {offset: 0, bytes: "|de ad|"}}`, upload, true},
		{"sport: tcp/443, length: 1500", open("192.0.2.1:40000", "203.0.113.7:443"), false}, // a download of this host
		{"sport: udp/123", upload, true},
		{"icmp: echo-request", upload, false}, // nothing is known about senders of echo requests
		{"icmp: timestamp-request", upload, true},
		{"sport: tcp/443, ttl: 60", open("[2001:db8::1]:40000", "[2001:db8::2]:443"), false},
	} {
		a := newAutoTest(t)
		a.open = tt.open
		if got := a.propose(ruleOf(tt.keys, 0)); (len(got) > 0) != tt.taken {
			t.Errorf("%s beside %v: taken %v, want %v", tt.keys, tt.open, got, tt.taken)
		}
	}
	a := newAutoTest(t)
	line := ruleOf(`port: tcp/443, flags: "ack/syn,ack", payload: {at: {offset: 0, bytes: "|de ad|"}}`, 0)
	a.propose(line)
	if got := a.second(nil, flood); got != nil {
		t.Fatalf("without a connection: %v", got)
	}
	a.open = upload
	if got := a.second(nil, flood); !slices.Equal(got, []string{Removed}) {
		t.Errorf("a connection begins: %v", got)
	}
	if a.open = nil; a.propose(line) != nil {
		t.Error("it comes again")
	}
}

// stepped returns the result of time.Now after the machine's clock was changed by whole seconds: only the wall clock reading differs.
func stepped(t *testing.T, at time.Time, by time.Duration) time.Time {
	t.Helper()
	const nanoseconds = 30 // bits of the first word of a time below its seconds
	after := at
	*(*uint64)(unsafe.Pointer(&after)) += uint64(by/time.Second) << nanoseconds
	if after.Sub(at) != 0 || after.Round(0).Sub(at.Round(0)) != by {
		t.Fatalf("%v is not %v after a step by %v", after, at, by)
	}
	return after
}

// TestAutomaticClock changes the machine's clock by a day while there are rules of this daemon and of the previous one. The rules must stay, and the
// kernel must get the same end as before. At their end the rules must be removed as expired, and not as removed by a person.
func TestAutomaticClock(t *testing.T) {
	const left = 40 * time.Second
	for _, by := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		for _, adopted := range []bool{true, false} {
			t.Run(fmt.Sprintf("by %v, adopted %t", by, adopted), func(t *testing.T) {
				a := newAutoTest(t)
				a.bounds.For = left
				a.automatic.propose([]suggest.Rule{rule(123, 0)}, a.conditions(), a.now)
				a.rules[0].step = nil
				if adopted {
					kept := manifest.Timed([]manifest.Temporary{a.rules[0].Temporary}, a.now)
					a = newAutoTest(t)
					a.adopt(kept, a.now)
				}
				there := map[string]bool{"auto-1": true}
				after := stepped(t, time.Now(), by)
				a.review(after, after, a.bounds, there, a.connections)
				if len(a.rules) != 1 || len(a.gone) != 0 {
					t.Fatalf("after the step %d rules stay, gone are %+v", len(a.rules), a.gone)
				}
				told := manifest.Timed([]manifest.Temporary{a.rules[0].Temporary}, after)[0]
				if lasts := told.Until.Sub(after.Round(0)); lasts <= 0 || lasts > left+time.Second {
					t.Errorf("the kernel is told to end it after %v", lasts)
				}
				if lasts := told.Ends - image.Monotonic(); lasts <= 0 || lasts > left {
					t.Errorf("XDP is told to end it after %v", lasts)
				}
				a.rules[0].Ends -= left // its end has passed
				a.review(after, after, a.bounds, nil, a.connections)
				if len(a.rules) != 0 || len(a.gone) != 1 || a.gone[0].Why != "its time is over" || len(a.rejected) != 0 {
					t.Errorf("at its end %d rules stay, gone are %+v, rejected %v", len(a.rules), a.gone, a.rejected)
				}
			})
		}
	}
}
