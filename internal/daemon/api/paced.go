// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"sync"
	"time"
)

// paced is a value that is read from the kernel on request. A read takes the lock that repairs, bans and commands wait for. So only one read runs at
// a time, and a rest follows each read, for any number of requests. Each caller gets the result of a read that began after the call.
type paced[T any] struct {
	read func(context.Context) (T, error)
	rest time.Duration // the pause after a read, as a multiple of the read's duration

	mu   sync.Mutex
	next *reading[T] // the next read, not started; nil when nobody waits
	busy bool
	idle time.Time // no read begins before this time
}

// reading is one read, whose result all waiting callers share.
type reading[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// restShare is the usual rest, as a multiple of a read's duration: reads take a quarter of the time.
const restShare = 3

// readTime is how long a read may take.
const readTime = 30 * time.Second

func newPaced[T any](read func(context.Context) (T, error), rest time.Duration) *paced[T] {
	return &paced[T]{read: read, rest: rest}
}

// get returns the value. All callers share the memory that the value points to.
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

// run reads until no caller waits.
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
