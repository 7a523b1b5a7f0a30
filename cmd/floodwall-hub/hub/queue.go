// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// The limits of the intake: queued statements of one node, statements of a node in one turn, and statements in one write. A write is also limited in
// time, because other nodes wait during a write.
const (
	maxWaiting = 2 * wire.MaxItems
	turn       = 16
	leastBatch = turn
	batchTime  = 100 * time.Millisecond
)

// part is a part of an offer that is written in one batch.
type part struct {
	*offer
	from, to int // of its statements
}

// queues has a queue for each origin. The origins take turns, so that an origin with many statements delays only itself.
type queues struct {
	mu    sync.Mutex
	of    map[string][]*offer // offers with statements that are not written yet
	count map[string]int      // number of statements that are not written yet, by origin
	order []string            // origins with such statements, the next one first
	wake  chan struct{}
	batch int // number of statements that can be written in batchTime
}

func newQueues() *queues {
	return &queues{of: map[string][]*offer{}, count: map[string]int{}, wake: make(chan struct{}, 1), batch: 16 * turn}
}

// add adds an offer to the queue of its origin. It returns false when the queue has no space. An offer whose result code of the hub awaits is always
// added.
func (q *queues) add(o *offer) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.of[o.origin]
	if o.done == nil && len(list) > 0 && max(len(list), q.count[o.origin]+len(o.said)) > maxWaiting {
		return false
	}
	if len(list) == 0 {
		q.order = append(q.order, o.origin)
	}
	o.outcomes, o.left = fill(len(o.said), wire.Taken), len(o.said)
	q.of[o.origin], q.count[o.origin] = append(list, o), q.count[o.origin]+len(o.said)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// next removes and returns the statements for the next batch: a few of each origin in turn.
func (q *queues) next() (list []part) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n := 0; len(q.order) > 0 && n < q.batch; {
		origin := q.order[0]
		q.order = q.order[1:]
		parts, taken := q.take(origin, min(turn, q.batch-n))
		list, n = append(list, parts...), n+taken
		if len(q.of[origin]) > 0 {
			q.order = append(q.order, origin)
		} else {
			delete(q.of, origin)
			delete(q.count, origin)
		}
	}
	return list
}

// take removes and returns at most n statements of an origin.
func (q *queues) take(origin string, n int) (list []part, taken int) {
	for len(q.of[origin]) > 0 {
		o := q.of[origin][0]
		from := len(o.said) - o.left
		to := min(len(o.said), from+n-taken)
		if to == from && o.left > 0 {
			break
		}
		list, taken, o.left = append(list, part{o, from, to}), taken+to-from, len(o.said)-to
		q.count[origin] -= to - from
		if o.left == 0 {
			q.of[origin] = q.of[origin][1:]
		}
	}
	return list, taken
}

// wrote records how long it took to write n statements. While all writes fail, batches are as large as possible, so that many statements fail at the
// same time.
func (q *queues) wrote(n int, took time.Duration, failing bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case failing:
		q.batch = wire.MaxItems
	case took > batchTime:
		q.batch = max(int(float64(n)*float64(batchTime)/float64(took)), leastBatch)
	case n >= q.batch:
		q.batch = min(2*q.batch, wire.MaxItems)
	}
}
