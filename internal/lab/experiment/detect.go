// This file is the experiment of that name: how soon the daemon sees an attack, what it does by itself, and what honest traffic suffers.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
	"github.com/floodwall/floodwall/internal/lab/traffic"
)

// runDetect measures the daemon with `detect: {auto: …}` from outside: attacks and honest traffic that is unusual come beside the usual mix of
// a host, which the daemon has learned before.
func runDetect(ctx context.Context, s *rig.Session) error {
	b := &detectBuilder{Builder: rig.Builder{Session: s}, learned: map[float64]*learnt{}}
	defer b.Close()
	for _, c := range detectCases() {
		if !b.Wants(c.name()) {
			continue
		}
		switch err := c.prepare(b.Captures); {
		case errors.Is(err, fs.ErrNotExist):
			c.missing = err.Error()
		case err != nil:
			return err
		}
		b.cases = append(b.cases, c)
	}
	if len(b.cases) == 0 {
		return nil
	}
	var err error
	if b.program, err = b.Find("floodwall"); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "floodwall-bench-"); err != nil {
		return err
	}
	b.Owned = append(b.Owned, func() error { return os.RemoveAll(b.dir) })
	defer b.publish() // what there is, also when the rest cannot be measured
	return b.measure(ctx)
}

// detectCase is a row.
type detectCase struct {
	*traffic.Model
	usual   func(t time.Duration) float64 // times that the usual mix comes
	learned float64                       // times that it came when the daemon learned; 0: once
	tcp     func(t *tcpTraffic)           // what comes by real sockets besides
	classes []traffic.Class               // of it
	kernel  []lab.Flow                    // sent by the kernel in place of the model's streams, as fast as it goes
	alone   bool                          // no other case may run at the time
	missing string
	visits  []*detectVisit
}

func (c *detectCase) name() string {
	if c.Honest {
		return "honest/" + c.Name
	}
	return "attack/" + c.Name
}

// prepare reads recorded packets.
func (c *detectCase) prepare(captures string) error {
	if c.Rate == 0 {
		return nil
	}
	if captures == "" {
		return fmt.Errorf("its packets: %w: --captures or FLOODWALL_TRACES names their directory", fs.ErrNotExist)
	}
	return c.Read(captures)
}

// Times. A sample counts as legitimate 30 s after it was taken, and 5,000 of them are kept.
const (
	learnTime  = 66 * time.Second
	settleTime = 4 * time.Second // of the usual mix before anything else comes
	quickLearn = time.Second
	quickTime  = time.Second // that an attack lasts
)

// lanes is how many cases run at a time, each with hosts of its own. They wait for time to pass, for the most part.
const lanes = 2

// detectBuilder makes the tables of detect.
type detectBuilder struct {
	rig.Builder
	program string
	dir     string // for files
	cases   []*detectCase

	mu      sync.Mutex
	number  int // of directories
	learned map[float64]*learnt
	failed  error
}

// learnt is what a daemon has learned of the usual mix that comes so many times.
type learnt struct {
	once sync.Once
	dir  string // its state
	err  error
}

// newDir is a new directory that only root can use.
func (b *detectBuilder) newDir() (string, error) {
	b.mu.Lock()
	b.number++
	dir := filepath.Join(b.dir, strconv.Itoa(b.number))
	b.mu.Unlock()
	return dir, os.Mkdir(dir, 0o700)
}

// measure takes all rounds.
func (b *detectBuilder) measure(ctx context.Context) error {
	b.Steps.Expect(b.Rounds * len(b.cases))
	for round := range b.Rounds {
		work := make(chan *detectCase)
		var taking sync.WaitGroup
		for range lanes {
			taking.Go(func() {
				for c := range work {
					b.take(ctx, round, c)
				}
			})
		}
		for _, c := range b.cases {
			if !c.alone {
				work <- c
			}
		}
		close(work)
		taking.Wait()
		for _, c := range b.cases {
			if c.alone {
				b.take(ctx, round, c)
			}
		}
	}
	return b.failed
}

// take takes a round of a case.
func (b *detectBuilder) take(ctx context.Context, round int, c *detectCase) {
	b.mu.Lock()
	b.Steps.Show("round %d of %d, %s", round+1, b.Rounds, c.Label)
	b.Steps.Step()
	stop := c.missing != "" || b.failed != nil
	b.mu.Unlock()
	if stop {
		return
	}
	v, err := b.visit(ctx, c, b.Seed+uint64(round))
	b.mu.Lock()
	defer b.mu.Unlock()
	reason, err := rig.Tolerate(err)
	switch {
	case err != nil:
		b.failed = errors.Join(b.failed, fmt.Errorf("%s: %w", c.name(), err))
	case reason != "":
		c.missing = reason
	default:
		c.visits = append(c.visits, v)
	}
}

// learn returns the state of a daemon that knows the usual mix.
func (b *detectBuilder) learn(ctx context.Context, times float64) (string, error) {
	b.mu.Lock()
	l := b.learned[times]
	if l == nil {
		l = &learnt{}
		b.learned[times] = l
	}
	b.mu.Unlock()
	l.once.Do(func() {
		if l.dir, l.err = b.newDir(); l.err == nil {
			l.err = b.teach(ctx, l.dir, times)
		}
	})
	return l.dir, l.err
}
