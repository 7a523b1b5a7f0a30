// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Most limits the lists of a view.
type Most struct{ Nodes, Attacks, Talkers int }

// ForNodes limits the view that every node gets every ten seconds. ForCommands limits the answer to a command.
var (
	ForNodes    = Most{Nodes: 32, Attacks: 16, Talkers: 16}
	ForCommands = Most{Nodes: 1024, Attacks: 64, Talkers: 64}
)

// The most nodes listed for an attack, and the most attacks listed for a node.
const (
	mostNamed = 16
	mostKinds = 3
)

// Rate is packets and bits a second.
type Rate struct {
	Packets uint64 `json:"packets"`
	Bits    uint64 `json:"bits"`
}

// View is the traffic of all nodes of a fleet, merged at a hub.
type View struct {
	Time     time.Time       `json:"time"` // time of the hub
	Hub      string          `json:"hub"`
	Nodes    int             `json:"nodes"`    // nodes with a summary in the last 30 seconds
	Attacked int             `json:"attacked"` // nodes under attack
	Passed   Rate            `json:"passed"`
	Dropped  Rate            `json:"dropped"` // all packets that did not pass
	Verdicts map[string]Rate `json:"verdicts"`

	Rows    []NodeRow      `json:"rows"`    // nodes: attacked ones first, then by their packets
	Attacks []SharedAttack `json:"attacks"` // the largest first
	Talkers []SharedTalker `json:"talkers"` // the most frequent first
	Missed  uint64         `json:"missed"`  // largest number of packets a second that any source can have sent to nodes that do not list the source
}

// NodeRow is a node.
type NodeRow struct {
	Node     string   `json:"node"`
	Age      float64  `json:"age"` // seconds since the node's summary arrived
	Attacked bool     `json:"attacked"`
	Passed   Rate     `json:"passed"`
	Dropped  Rate     `json:"dropped"`
	Attacks  []string `json:"attacks,omitempty"` // kinds of the first three attacks
}

// SharedAttack combines the attacks of one kind on one service at one or more nodes.
type SharedAttack struct {
	Kind    string    `json:"kind"`
	Service string    `json:"service,omitempty"`
	Started time.Time `json:"started"` // the earliest start at any node
	Packets uint64    `json:"packets"` // a second, at all nodes
	Count   int       `json:"count"`   // number of nodes
	Nodes   []string  `json:"nodes"`   // at most 16 of the nodes
}

// SharedTalker is a source with the rates at the nodes that list it. According to the samples, the source sent at least Packets-Error and at most
// Packets packets a second to these nodes.
type SharedTalker struct {
	Prefix  netip.Prefix `json:"prefix"`
	Packets uint64       `json:"packets"`
	Error   uint64       `json:"error"`
	Samples uint64       `json:"samples"` // approximate number of samples behind Packets
	Nodes   int          `json:"nodes"`   // number of nodes that list it
	Node    string       `json:"node"`    // the node to which the source sends most
	Here    uint64       `json:"here"`    // packets a second to that node
}

// merging is a view during the merge.
type merging struct {
	decided [len(Verdicts)]Rate
	rows    []NodeRow
	attacks map[[2]string]*SharedAttack
	talkers map[netip.Prefix]*SharedTalker
	missed  uint64
	at      []time.Time
}

func newMerging() *merging {
	return &merging{attacks: map[[2]string]*SharedAttack{}, talkers: map[netip.Prefix]*SharedTalker{}}
}

// perSecond returns a rate, both rounded down and rounded up.
func perSecond(n uint64, span time.Duration) (low, high uint64) {
	ms := uint64(span.Milliseconds())
	low = n / ms * 1000
	rest := n % ms * 1000
	return low + rest/ms, low + (rest+ms-1)/ms
}

func (r *Rate) add(more Rate) { r.Packets, r.Bits = r.Packets+more.Packets, r.Bits+more.Bits }

func (m *merging) add(node string, h *heard) {
	row := NodeRow{Node: node, Attacked: len(h.Attacks) > 0}
	for i, a := range h.Decided {
		packets, _ := perSecond(a.Packets, h.Span)
		bits, _ := perSecond(8*a.Bytes, h.Span)
		r := Rate{packets, bits}
		m.decided[i].add(r)
		if i == 0 {
			row.Passed.add(r)
		} else {
			row.Dropped.add(r)
		}
	}
	for i := range h.Attacks {
		if i < mostKinds {
			row.Attacks = append(row.Attacks, h.Attacks[i].Kind)
		}
		m.addAttack(node, &h.Attacks[i])
	}
	for i := range h.Talkers {
		m.addTalker(node, h, &h.Talkers[i])
	}
	_, missed := perSecond(h.Missed, h.Span)
	m.missed += missed
	m.rows, m.at = append(m.rows, row), append(m.at, h.at)
}

func (m *merging) addAttack(node string, a *Attack) {
	key := [2]string{a.Kind, a.Service}
	started := time.UnixMilli(a.Started).UTC()
	s := m.attacks[key]
	if s == nil {
		s = &SharedAttack{Kind: a.Kind, Service: a.Service, Started: started}
		m.attacks[key] = s
	}
	if started.Before(s.Started) {
		s.Started = started
	}
	s.Packets += a.Packets
	s.Count++
	s.Nodes = append(s.Nodes, node)
}

// addTalker adds a node's bounds for a source. The sums of the bounds are bounds of the sum (Agarwal et al., "Mergeable Summaries", PODS 2012).
func (m *merging) addTalker(node string, h *heard, t *Talker) {
	s := m.talkers[t.Prefix]
	if s == nil {
		s = &SharedTalker{Prefix: t.Prefix}
		m.talkers[t.Prefix] = s
	}
	_, high := perSecond(t.Packets, h.Span)
	low, _ := perSecond(t.Packets-t.Error, h.Span)
	s.Packets += high
	s.Error += high - low
	s.Samples += t.Packets / uint64(h.OneIn)
	s.Nodes++
	if high > s.Here || high == s.Here && (s.Node == "" || node < s.Node) {
		s.Node, s.Here = node, high
	}
}

// view returns the view. Its order does not depend on the order in which nodes were added.
func (m *merging) view(now time.Time, most Most) *View {
	v := &View{Time: now.UTC().Round(time.Millisecond), Nodes: len(m.rows), Verdicts: map[string]Rate{}, Missed: m.missed}
	for i, r := range m.decided {
		v.Verdicts[Verdicts[i]] = r
		if i == 0 {
			v.Passed.add(r)
		} else {
			v.Dropped.add(r)
		}
	}
	for i := range m.rows {
		m.rows[i].Age = max(0, now.Sub(m.at[i]).Round(100*time.Millisecond).Seconds())
		if m.rows[i].Attacked {
			v.Attacked++
		}
	}
	v.Rows = first(slices.SortedFunc(slices.Values(m.rows), compareRows), most.Nodes)
	for s := range maps.Values(m.attacks) {
		slices.Sort(s.Nodes)
		s.Nodes = first(s.Nodes, mostNamed)
		v.Attacks = append(v.Attacks, *s)
	}
	slices.SortFunc(v.Attacks, func(a, b SharedAttack) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Service, b.Service))
	})
	v.Attacks = first(v.Attacks, most.Attacks)
	for s := range maps.Values(m.talkers) {
		v.Talkers = append(v.Talkers, *s)
	}
	slices.SortFunc(v.Talkers, func(a, b SharedTalker) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), a.Prefix.Addr().Compare(b.Prefix.Addr()))
	})
	v.Talkers = first(v.Talkers, most.Talkers)
	return v
}

func compareRows(a, b NodeRow) int {
	if a.Attacked != b.Attacked {
		if a.Attacked {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(b.Passed.Packets+b.Dropped.Packets, a.Passed.Packets+a.Dropped.Packets), cmp.Compare(a.Node, b.Node))
}

// first returns the first n items of a list. The result is never nil.
func first[T any](list []T, n int) []T { return append([]T{}, list[:min(n, len(list))]...) }
