package addrs

import "iter"

// merged yields the keys of n ascending sequences in ascending order, each with the number of its sequence. next
// returns a sequence's key number step, and false behind the last. A binary heap: a sequence that stays the smallest
// costs two comparisons a key, so one long sequence among thousands of short ones is not slowed down by them.
func merged[K any](n int, next func(seq int32, step int) (K, bool), less func(a, b K) bool) iter.Seq2[K, int32] {
	return func(yield func(K, int32) bool) {
		h := heads[K]{less: less}
		for seq := range int32(n) {
			if key, ok := next(seq, 0); ok {
				h.heap = append(h.heap, head[K]{key, seq, 0})
			}
		}
		for i := len(h.heap)/2 - 1; i >= 0; i-- {
			h.sink(i)
		}
		for len(h.heap) > 0 {
			top := &h.heap[0]
			if !yield(top.key, top.seq) {
				return
			}
			h.advance(next)
		}
	}
}

// heads is the heap of the sequences' next keys.
type heads[K any] struct {
	heap []head[K]
	less func(a, b K) bool
}

type head[K any] struct {
	key  K
	seq  int32
	step int
}

// advance replaces the top by its sequence's next key.
func (h *heads[K]) advance(next func(seq int32, step int) (K, bool)) {
	top := &h.heap[0]
	top.step++
	key, ok := next(top.seq, top.step)
	if ok {
		top.key = key
	} else {
		last := len(h.heap) - 1
		h.heap[0] = h.heap[last]
		h.heap = h.heap[:last]
	}
	h.sink(0)
}

// sink moves the element at i down to its place.
func (h *heads[K]) sink(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.heap); child++ {
			if h.less(h.heap[child].key, h.heap[least].key) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.heap[i], h.heap[least] = h.heap[least], h.heap[i]
		i = least
	}
}
