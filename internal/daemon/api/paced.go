package api

import (
	"context"
	"sync"
	"time"
)

// paced is a value that is read from the kernel when somebody asks. However many ask, and however often, one read is under way at
// a time, and between two of them is a rest: reads take the lock that repairs, bans and commands wait for. Each caller gets the
// result of a read that began after the call.
type paced[T any] struct {
	read func(context.Context) (T, error)
	rest time.Duration // after a read, in times that it took

	mu   sync.Mutex
	next *reading[T] // has not started; nil when nobody waits
	busy bool
	idle time.Time // until when no read begins
}

// reading is a read for all who wait for it.
type reading[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// restShare is the usual rest: reading takes a quarter of the time.
const restShare = 3

// readTime is how long a read may take.
const readTime = 30 * time.Second

func newPaced[T any](read func(context.Context) (T, error), rest time.Duration) *paced[T] {
	return &paced[T]{read: read, rest: rest}
}

// get returns the value. What it points to belongs to all callers.
func (p *paced[T]) get(ctx context.Context) (T, error) {
	p.mu.Lock()
	if p.next == nil {
		p.next = &reading[T]{done: make(chan struct{})}
		if !p.busy {
			p.busy = true
			go p.run()
		}
	}
	mine := p.next
	p.mu.Unlock()
	select {
	case <-mine.done:
		return mine.value, mine.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// run reads until nobody waits.
func (p *paced[T]) run() {
	for {
		p.mu.Lock()
		wait := time.Until(p.idle)
		p.mu.Unlock()
		time.Sleep(wait)
		p.mu.Lock()
		now := p.next
		p.next = nil
		if now == nil {
			p.busy = false
		}
		p.mu.Unlock()
		if now == nil {
			return
		}
		p.once(now)
	}
}

func (p *paced[T]) once(r *reading[T]) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	r.value, r.err = p.read(ctx)
	close(r.done)
	p.mu.Lock()
	p.idle = time.Now().Add(p.rest * time.Since(begin))
	p.mu.Unlock()
}
