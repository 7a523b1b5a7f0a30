package hub

import (
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// What waits for the intake: how many statements of one node at most, how many are taken of a node before it is the next one's turn, and how
// many are written at a time. The last is bounded by a time too, as nobody else is served meanwhile.
const (
	maxWaiting = 2 * wire.MaxItems
	turn       = 16
	leastBatch = turn
	batchTime  = 100 * time.Millisecond
)

// part is a part of an offer that is written at a time.
type part struct {
	*offer
	from, to int // of its statements
}

// queues has a queue for each origin. Each has its turn, so that one that says much delays itself alone.
type queues struct {
	mu    sync.Mutex
	of    map[string][]*offer // those with something left
	count map[string]int      // statements left, by origin
	order []string            // origins with something left, the next one first
	wake  chan struct{}
	batch int // statements that can be written in batchTime
}

func newQueues() *queues {
	return &queues{of: map[string][]*offer{}, count: map[string]int{}, wake: make(chan struct{}, 1), batch: 16 * turn}
}

// add adds an offer to the queue of its origin. It reports false when there is no space, but for what somebody within the hub waits for.
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

// next takes what is to be written at a time: of each origin in its turn.
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

// take takes statements of an origin, n at most.
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

// wrote notes how long it took to write statements. While no write arrives, as many as possible are to fail at a time.
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
