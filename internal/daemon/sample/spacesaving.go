// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"cmp"
	"container/heap"
	"slices"
)

// Counter counts keys in a fixed number of places. It is the algorithm Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient Computation of
// Frequent and Top-k Elements in Data Streams", ICDT 2005). After N additions to a Counter with m places
//   - no count is less than the true one, nor more than N/m above it;
//   - a key that was added more than N/m times has a place.
type Counter[K comparable] struct {
	most  int
	total uint64
	at    map[K]*place[K]
	least places[K]
}

// Count is a key with limits of the number of its additions: at most Packets, and at least Packets-Over.
type Count[K comparable] struct {
	Key     K
	Packets uint64
	Over    uint64 // the largest possible error of Packets
}

// Least returns a lower limit of the number of times that the key was added.
func (c Count[K]) Least() uint64 { return c.Packets - c.Over }

// NewCounter makes a Counter with this many places, at least 1.
func NewCounter[K comparable](places int) *Counter[K] {
	return &Counter[K]{most: max(1, places), at: make(map[K]*place[K], places)}
}

// Total returns the number of additions.
func (c *Counter[K]) Total() uint64 { return c.total }

// Add counts a key once. When all places are taken, a key without a place replaces the key with the least count.
func (c *Counter[K]) Add(key K) {
	c.total++
	p := c.at[key]
	switch {
	case p != nil:
	case len(c.least) < c.most:
		p = &place[K]{Count: Count[K]{Key: key}, index: len(c.least)}
		c.at[key] = p
		c.least = append(c.least, p) // its count of 0 is raised below
	default:
		p = c.least[0]
		delete(c.at, p.Key)
		p.Key, p.Over = key, p.Packets
		c.at[key] = p
	}
	p.Packets++
	heap.Fix(&c.least, p.index)
}

// Get returns the count of a key. A key without a place was added at most Packets times, or never.
func (c *Counter[K]) Get(key K) Count[K] {
	if p := c.at[key]; p != nil {
		return p.Count
	}
	if len(c.least) < c.most {
		return Count[K]{Key: key}
	}
	return Count[K]{Key: key, Packets: c.least[0].Packets, Over: c.least[0].Packets}
}

// Top returns the n keys with the highest counts, the highest first.
func (c *Counter[K]) Top(n int) []Count[K] {
	counts := c.counts()
	return counts[:min(n, len(counts))]
}

// counts returns all keys with a place, the highest count first. Among equal counts the one with the smaller error is first.
func (c *Counter[K]) counts() []Count[K] {
	list := make([]Count[K], len(c.least))
	for i, p := range c.least {
		list[i] = p.Count
	}
	slices.SortFunc(list, func(a, b Count[K]) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Over, b.Over))
	})
	return list
}

// place is the count of a key.
type place[K comparable] struct {
	Count[K]
	index int // in places
}

// places is a heap of places, with the lowest count first.
type places[K comparable] []*place[K]

func (p places[K]) Len() int           { return len(p) }
func (p places[K]) Less(i, j int) bool { return p[i].Packets < p[j].Packets }
func (p places[K]) Swap(i, j int) {
	p[i], p[j] = p[j], p[i]
	p[i].index, p[j].index = i, j
}

// Push implements heap.Interface. Add does not use it.
func (p *places[K]) Push(x any) { *p = append(*p, x.(*place[K])) }

// Pop implements heap.Interface. Add does not use it.
func (p *places[K]) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}
