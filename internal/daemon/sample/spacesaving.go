package sample

import (
	"cmp"
	"container/heap"
	"slices"
)

// Counter counts keys in a fixed number of places: the algorithm Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient Computation
// of Frequent and Top-k Elements in Data Streams", ICDT 2005). After N additions to a Counter of m places
//   - no count is less than the true one, nor more than N/m above it;
//   - a key that was added more than N/m times has a place.
type Counter[K comparable] struct {
	most  int
	total uint64
	at    map[K]*place[K]
	least places[K]
}

// Count is a key and how often it was added: at most Packets times, and at least Packets-Over times.
type Count[K comparable] struct {
	Key     K
	Packets uint64
	Over    uint64 // what Packets may be too much
}

// Least is the number of times that the key was added for certain.
func (c Count[K]) Least() uint64 { return c.Packets - c.Over }

// NewCounter makes a Counter of so many places, at least 1.
func NewCounter[K comparable](places int) *Counter[K] {
	return &Counter[K]{most: max(1, places), at: make(map[K]*place[K], places)}
}

// Total is the number of additions.
func (c *Counter[K]) Total() uint64 { return c.total }

// Add counts a key once. A key that has no place takes the one of the least count when all are taken.
func (c *Counter[K]) Add(key K) {
	c.total++
	p := c.at[key]
	switch {
	case p != nil:
	case len(c.least) < c.most:
		p = &place[K]{Count: Count[K]{Key: key}, index: len(c.least)}
		c.at[key] = p
		c.least = append(c.least, p) // its count of 0 is made right below
	default:
		p = c.least[0]
		delete(c.at, p.Key)
		p.Key, p.Over = key, p.Packets
		c.at[key] = p
	}
	p.Packets++
	heap.Fix(&c.least, p.index)
}

// Get is the count of a key. One without a place was added at most Packets times, and may have never been.
func (c *Counter[K]) Get(key K) Count[K] {
	if p := c.at[key]; p != nil {
		return p.Count
	}
	if len(c.least) < c.most {
		return Count[K]{Key: key}
	}
	return Count[K]{Key: key, Packets: c.least[0].Packets, Over: c.least[0].Packets}
}

// Top are the n keys of the highest counts, the highest first.
func (c *Counter[K]) Top(n int) []Count[K] {
	counts := c.counts()
	return counts[:min(n, len(counts))]
}

// counts are all keys that have a place, the highest count first, of equal counts the surer one.
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

// place is where a key is counted.
type place[K comparable] struct {
	Count[K]
	index int // in places
}

// places is a heap, the least count first.
type places[K comparable] []*place[K]

func (p places[K]) Len() int           { return len(p) }
func (p places[K]) Less(i, j int) bool { return p[i].Packets < p[j].Packets }
func (p places[K]) Swap(i, j int) {
	p[i], p[j] = p[j], p[i]
	p[i].index, p[j].index = i, j
}

// Push is of heap.Interface; Add does without it.
func (p *places[K]) Push(x any) { *p = append(*p, x.(*place[K])) }

// Pop is of heap.Interface; Add does without it.
func (p *places[K]) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}
