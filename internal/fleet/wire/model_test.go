// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// The model has nodes whose clocks are wrong by up to a minute, hubs, and messages between them that are lost, duplicated and reordered. A spec
// contains the whole history in one list. The model compares the nodes with the spec at every step, and after the network is repaired.

const (
	modelNodes    = 4
	modelHubs     = 3
	modelPrefixes = 5
	clockError    = 50 * time.Millisecond // error that remains after a clock was corrected
)

// said is one line of the plain specification's history.
type said struct {
	prefix int
	Statement
}

// spec contains all statements of the history.
type spec []said

// until returns the latest end of a ban of a prefix that no later lift has ended; 0 when there is none.
func (all spec) until(prefix int, now time.Time, self string) (until int64) {
	for _, b := range all {
		if b.prefix != prefix || b.Lift() || b.Until <= now.UnixMilli() || b.Origin == self || all.lifted(b, self) {
			continue
		}
		until = max(until, b.Until)
	}
	return until
}

// lifted reports whether a lift has ended a ban for a node.
func (all spec) lifted(b said, self string) bool {
	for _, l := range all {
		if l.prefix == b.prefix && l.Lift() && l.Seq >= b.Seq && (l.Origin == b.Origin || l.Origin == self || l.Origin == Controller) {
			return true
		}
	}
	return false
}

type model struct {
	t       *testing.T
	r       *rand.Rand
	now     time.Time // the true time
	history spec
	tables  []Table         // of nodes, then of hubs
	skew    []time.Duration // remaining error of each clock after the correction
	last    []uint64        // number of the last statement of each node and hub; the controller makes its statements at hubs
	cut     []bool          // the nodes and hubs that are cut off from the network
	flying  []flight
	prefix  []netip.Prefix
}

type flight struct {
	to int
	Record
}

func newModel(t *testing.T, r *rand.Rand) *model {
	m := &model{t: t, r: r, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for range modelNodes + modelHubs {
		// A clock that is wrong by up to a minute is corrected by an exchange with a hub. The error of that exchange remains.
		wrong := time.Duration(m.r.Int64N(int64(2*time.Minute))) - time.Minute
		measured := -wrong + time.Duration(m.r.Int64N(int64(2*clockError))) - clockError
		m.skew = append(m.skew, wrong+measured)
	}
	m.tables, m.last, m.cut = make([]Table, len(m.skew)), make([]uint64, len(m.skew)+1), make([]bool, len(m.skew))
	for i := range modelPrefixes {
		m.prefix = append(m.prefix, netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/32", i)))
	}
	return m
}

func (m *model) clock(i int) time.Time { return m.now.Add(m.skew[i]) }

func (m *model) name(i int) string { return string(rune('a' + i)) }

// say makes a random origin ban a prefix or lift its bans.
func (m *model) say() {
	i, prefix := m.r.IntN(len(m.tables)), m.r.IntN(modelPrefixes)
	s := Statement{Origin: m.name(i)}
	last := &m.last[i]
	if i >= modelNodes {
		s.Origin, last = Controller, &m.last[len(m.tables)]
	}
	s.Seq = NextSequence(m.clock(i), *last)
	*last = s.Seq
	if m.r.IntN(3) > 0 {
		s.Until = m.clock(i).Add(time.Duration(1 + m.r.Int64N(int64(90*time.Second)))).UnixMilli()
	}
	m.history = append(m.history, said{prefix, s})
	m.tables[i].Merge(Record{m.prefix[prefix], []Statement{s}})
	m.send(i, prefix)
}

// send sends the record of a prefix, as one node or hub knows it, to all others.
func (m *model) send(from, prefix int) {
	if m.cut[from] {
		return
	}
	for to := range m.tables {
		if to != from && len(m.flying) < 64 {
			m.flying = append(m.flying, flight{to, m.tables[from].Get(m.prefix[prefix]).Without(m.clock(from))})
		}
	}
}

// deliver takes any message on its way. It delivers the message, loses it, or delivers it and keeps a duplicate.
func (m *model) deliver() {
	if len(m.flying) == 0 {
		return
	}
	i := m.r.IntN(len(m.flying))
	f := m.flying[i]
	if m.r.IntN(4) > 0 {
		m.flying[i] = m.flying[len(m.flying)-1]
		m.flying = m.flying[:len(m.flying)-1]
	}
	if !m.cut[f.to] && m.r.IntN(8) > 0 {
		m.tables[f.to].Merge(f.Record)
	}
}

// enforced checks one node: it must drop only banned prefixes, and none for longer than its ban.
func (m *model) enforced() {
	i, prefix := m.r.IntN(modelNodes), m.r.IntN(modelPrefixes)
	e, ok := m.tables[i].Get(m.prefix[prefix]).Effect(m.clock(i), m.name(i), 1)
	if !ok {
		return
	}
	if !slices.ContainsFunc(m.history, func(b said) bool { return b.prefix == prefix && b.Until == e.Until.UnixMilli() }) {
		m.t.Fatalf("node %d bans prefix %d until %v, which nobody said", i, prefix, e.Until)
	}
	if m.now.Sub(e.Until) > clockError {
		m.t.Fatalf("node %d bans prefix %d for %v after its end", i, prefix, m.now.Sub(e.Until))
	}
}

// heal reconnects all nodes and hubs, and compares the bans that each node enforces with the spec.
func (m *model) heal() {
	for i := range m.cut {
		m.cut[i] = false
	}
	for _, f := range m.flying { // late duplicates
		m.tables[f.to].Merge(f.Record)
	}
	m.flying = m.flying[:0]
	for range 2 { // first to a hub, and then from the hub
		for i := range m.tables {
			for r := range m.tables[i].All() {
				m.tables[modelNodes].Merge(r)
			}
		}
		for i := range m.tables {
			for r := range m.tables[modelNodes].All() {
				m.tables[i].Merge(r)
			}
		}
	}
	for prefix, p := range m.prefix {
		for i := range m.tables {
			if !m.tables[i].Get(p).Without(m.now).Equal(m.tables[0].Get(p).Without(m.now)) {
				m.t.Fatalf("after healing %d and 0 differ in %v:\n%v\n%v", i, p, m.tables[i].Get(p), m.tables[0].Get(p))
			}
			want := m.history.until(prefix, m.now, m.name(i))
			got := int64(0)
			if e, ok := m.tables[i].Get(p).Effect(m.now, m.name(i), 1); ok {
				got = e.Until.UnixMilli()
			}
			if got != want {
				m.t.Fatalf("node %d bans %v until %d, the specification says %d", i, p, got, want)
			}
		}
	}
	m.history = slices.DeleteFunc(m.history, func(s said) bool { return SequenceTime(s.Seq).Add(3 * time.Minute).Before(m.now) })
}

func (m *model) step() {
	switch n := m.r.IntN(1000); {
	case n < 120:
		m.say()
	case n < 620:
		m.deliver()
	case n < 820:
		m.now = m.now.Add(time.Duration(m.r.Int64N(int64(time.Second))))
		m.enforced()
	case n < 900:
		m.send(m.r.IntN(len(m.tables)), m.r.IntN(modelPrefixes))
	case n < 940:
		i := m.r.IntN(len(m.cut))
		m.cut[i] = !m.cut[i]
	case n < 990:
		i := m.r.IntN(len(m.tables))
		m.tables[i].Sweep(m.clock(i))
	case n < 992:
		m.heal()
	}
}

// TestModel compares what nodes enforce with a plain specification that knows the whole history, over partitions, losses,
// duplicates, reorderings and wrong clocks. FLOODWALL_LONG=1 makes it 10 million steps.
func TestModel(t *testing.T) {
	t.Parallel()
	m := newModel(t, testutil.Random(t))
	for range testutil.Scaled(40_000, 10_000_000) {
		m.step()
	}
	m.heal()
}
