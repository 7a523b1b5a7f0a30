// SPDX-License-Identifier: Apache-2.0

package addrs

import "iter"

// merged merges n ascending sequences. It yields their keys in ascending order, each with the number of its sequence.
// next returns the key with index step of a sequence, and false after the last key. merged uses a binary heap. While
// one sequence has the smallest key, each key costs only two comparisons, so thousands of short sequences do not slow
// down a long one.
func merged[K any](n int, next func(seq int32, step int) (K, bool), less func(a, b K) bool) iter.Seq2[K, int32] {
	return func(yield func(K, int32) bool) {
		h := newHeads(n, next, less)
		for len(h.heap) > 0 {
			top := &h.heap[0]
			if !yield(top.key, top.seq) {
				return
			}
			h.advance(1, next)
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

func newHeads[K any](n int, next func(seq int32, step int) (K, bool), less func(a, b K) bool) *heads[K] {
	h := &heads[K]{less: less}
	for seq := range int32(n) {
		if key, ok := next(seq, 0); ok {
			h.heap = append(h.heap, head[K]{key, seq, 0})
		}
	}
	for i := len(h.heap)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
	return h
}

// second returns the least of the next keys of all sequences except the one at the top of the heap. It returns none if there is no other sequence.
func (h *heads[K]) second(none K) K {
	for i := 1; i <= 2 && i < len(h.heap); i++ {
		if i == 1 || h.less(h.heap[i].key, none) {
			none = h.heap[i].key
		}
	}
	return none
}

// advance skips a number of steps in the sequence at the top of the heap, and restores the heap.
func (h *heads[K]) advance(steps int, next func(seq int32, step int) (K, bool)) {
	top := &h.heap[0]
	top.step += steps
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

// sink moves the element at i down to its place in the heap.
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
