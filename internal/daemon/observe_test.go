// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestTalkersOfAll lets nodes count sources in tables with few places, sends their summaries as messages, and compares the merged view with exact
// sums. For the nodes that list a source, the true rate must be within the view's bounds. At other nodes, no source may have sent more than the
// view's limit.
func TestTalkersOfAll(t *testing.T) {
	t.Parallel()
	const nodes, packets, oneIn = 12, 20_000, 100
	r := testutil.Random(t)
	var all [2]wire.Board // the second board receives the nodes in another order
	now := time.Now()
	whole := map[netip.Prefix]uint64{} // packets a second
	named := map[netip.Prefix]uint64{} // at nodes that name the source
	var messages [][]byte
	for range nodes {
		count, exact := sample.NewCounter[netip.Prefix](64), map[netip.Prefix]uint64{}
		for range packets {
			n := uint32(float64(uint32(1)<<12) * r.Float64() * r.Float64() * r.Float64() * r.Float64())
			p := wire.SourcePrefix(netip.AddrFrom4([4]byte{198, 51, byte(n >> 8), byte(n)}))
			if n%3 == 0 {
				p = wire.SourcePrefix(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(n >> 8), byte(n), 15: byte(r.Uint32())}))
			}
			count.Add(p)
			exact[p] += oneIn
		}
		s := &wire.Summary{Span: 10 * time.Second}
		addTalkers(s, count, oneIn)
		for p, n := range exact {
			whole[p] += n / 10
		}
		for _, k := range s.Talkers {
			named[k.Prefix] += exact[k.Prefix] / 10
		}
		messages = append(messages, wire.EncodeSummary(s))
	}
	for i := range messages {
		for b, at := range []int{i, nodes - 1 - i} {
			s, err := wire.ParseSummary(messages[at])
			if err != nil {
				t.Fatal(err)
			}
			all[b].Put(fmt.Sprint("node-", at), s, now)
		}
	}
	v := all[0].View(now, wire.Most{Talkers: 1000})
	if other := all[1].View(now, wire.Most{Talkers: 1000}); !reflect.DeepEqual(v, other) {
		t.Error("the view depends on the order in which summaries come")
	}
	sure := 0
	for _, k := range v.Talkers {
		if n := named[k.Prefix]; n > k.Packets || n < k.Packets-k.Error {
			t.Errorf("%v: %d packets/s, at most %d too many; it is %d", k.Prefix, k.Packets, k.Error, n)
		}
		if n := whole[k.Prefix]; n > k.Packets+v.Missed {
			t.Errorf("%v: at most %d packets/s and %d elsewhere; it is %d", k.Prefix, k.Packets, v.Missed, n)
		}
		if k.Error < k.Packets/4 && k.Nodes == nodes {
			sure++
		}
		delete(whole, k.Prefix)
	}
	for p, n := range whole {
		if n > v.Missed {
			t.Errorf("%v is missing, and sent %d packets/s", p, n)
		}
	}
	if sure < 2 {
		t.Errorf("only %d sources are known well: %+v", sure, v.Talkers)
	}
}

// TestSummary makes a summary from two readings of the counters and from the report of an attack.
func TestSummary(t *testing.T) {
	t.Parallel()
	reading := func(n uint64) *control.Status {
		rule := func(name, verdict string, packets uint64, observe bool) control.RuleStatus {
			return control.RuleStatus{Name: name, Verdict: verdict, Packets: packets, Bytes: 100 * packets, Observe: observe}
		}
		return &control.Status{
			Rules:   []control.RuleStatus{rule("web", "pass", 10*n, false), rule("bad", "reject", 3*n, false), rule("looks", "drop", 7*n, true)},
			Checks:  []control.RuleStatus{rule("check", "drop", 5*n, false)},
			Default: rule("default", "drop", 2*n, false),
		}
	}
	s := summary(reading(10), reading(1010), 10*time.Second)
	want := [4]wire.Amount{{Packets: 10_000, Bytes: 1_000_000}, {Packets: 7000, Bytes: 700_000}, {Packets: 3000, Bytes: 300_000}}
	if s.Decided != want || s.Span != 10*time.Second {
		t.Errorf("%+v, want %+v", s, want)
	}
	report := &attack.Report{
		Started: time.UnixMilli(5000), Vectors: []attack.Vector{{Name: "SYN flood", Share: 0.5}, {Name: "UDP flood", Share: 0.25}},
		Samples: &operate.Samples{Fields: map[string][]operate.Talker{"port": {{Key: "tcp/443", Share: 0.6}}}},
	}
	s.Attacks = attacksOf(report, s)
	attacks := []wire.Attack{{Kind: "SYN flood", Service: "tcp/443", Started: 5000, Packets: 1000}, {Kind: "UDP flood", Started: 5000, Packets: 500}}
	if err := s.Check(); err != nil || !reflect.DeepEqual(s.Attacks, attacks) {
		t.Errorf("attacks: %v %+v", err, s.Attacks)
	}
	report.Vectors, report.Samples = nil, nil
	if got := attacksOf(report, s); len(got) != 1 || got[0].Kind != "of unknown kind" || got[0].Packets != 2000 {
		t.Errorf("an attack without samples: %+v", got)
	}
	if got := attacksOf(nil, s); got != nil {
		t.Errorf("no attack: %+v", got)
	}
}
