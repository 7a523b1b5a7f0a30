// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestOneAttack lets three nodes report one attack, and one of them a second attack. Each attack must be one line with the names of its nodes, until
// the nodes no longer report it.
func TestOneAttack(t *testing.T) {
	var b Board
	start := time.Now()
	flood := Attack{Kind: "SYN flood", Service: "tcp/443", Packets: 1000}
	for i, name := range []string{"c", "a", "b"} {
		a := flood
		a.Started = int64(1000 * (i + 1))
		s := Summary{Span: 10 * time.Second, Decided: [4]Amount{{Packets: 100, Bytes: 1000}, {Packets: 10_000}}, Attacks: []Attack{a}}
		if name == "b" {
			s.Attacks = append(s.Attacks, Attack{Kind: "SYN flood", Service: "tcp/80", Packets: 9000})
		}
		b.Put(name, s, start.Add(time.Duration(i)*time.Second))
	}
	b.Put("quiet", Summary{Span: time.Second, Decided: [4]Amount{{Packets: 5_000_000}}}, start.Add(2*time.Second))
	v := b.View(start.Add(3*time.Second), ForNodes)
	got := fmt.Sprintln(v.Nodes, v.Attacked, len(v.Attacks), v.Attacks[0].Kind, v.Attacks[0].Service, v.Attacks[0].Packets, v.Attacks[0].Started.UnixMilli(), v.Attacks[0].Nodes)
	if want := "4 3 2 SYN flood tcp/443 3000 1000 [a b c]\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if v.Passed.Packets != 5_000_030 || v.Passed.Bits != 2400 || v.Dropped.Packets != 3000 || v.Verdicts["drop"].Packets != 3000 {
		t.Errorf("rates: %+v", v)
	}
	if v.Rows[0].Node != "a" || v.Rows[0].Age != 2 || v.Rows[3].Node != "quiet" || v.Rows[3].Attacked {
		t.Errorf("rows: %+v", v.Rows)
	}
	b.Forget("a")
	if v = b.View(start.Add(Stale+time.Second), ForNodes); v.Nodes != 2 || v.Attacks[0].Count != 1 { // only the summary of b is still valid
		t.Errorf("after 31 s: %+v", v)
	}
	if v = b.View(start.Add(Stale+2*time.Second), ForNodes); v.Nodes != 0 || v.Attacked != 0 || len(v.Attacks)+len(v.Rows)+len(v.Talkers) != 0 || !b.Empty() {
		t.Errorf("after 32 s: %+v", v)
	}
}

// TestManyNodes fills a board with summaries of the greatest size. The view and the board must keep their limits.
func TestManyNodes(t *testing.T) {
	var b Board
	now := time.Now()
	for i := range 3000 {
		s := Summary{Span: time.Second, OneIn: 1}
		for n := range MaxAttacks {
			s.Attacks = append(s.Attacks, Attack{Kind: fmt.Sprintf("%064d", (i+n)%200), Packets: maxPackets})
		}
		for n := range MaxTalkers {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(n)}), 32)
			s.Talkers = append(s.Talkers, Talker{Prefix: p, Packets: maxPackets, Error: 1})
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		b.Put(fmt.Sprintf("node-%027d", i), s, now)
	}
	for most, want := range map[Most]int{ForNodes: 32 << 10, ForCommands: 1 << 20} {
		if text, err := json.Marshal(b.View(now, most)); err != nil || len(text) > want {
			t.Errorf("%+v: a view of %d bytes, want at most %d: %v", most, len(text), want, err)
		}
	}
	v := b.View(now, ForNodes)
	if v.Nodes != 3000 || len(v.Rows) != 32 || len(v.Attacks) != 16 || len(v.Talkers) != 16 || len(v.Attacks[0].Nodes) != 16 || v.Attacks[0].Count != 120 {
		t.Errorf("%d nodes, %d rows, %d attacks, %d talkers: %+v", v.Nodes, len(v.Rows), len(v.Attacks), len(v.Talkers), v.Attacks[0])
	}
	for i := range maxNodes {
		b.Put(fmt.Sprint("more-", i), Summary{Span: time.Second}, now)
	}
	if b.Put("one more", Summary{}, now) || !b.Put("more-1", Summary{}, now) {
		t.Error("a full board takes another node, or takes no summary of one that it has")
	}
}
