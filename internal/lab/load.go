package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// LoadOptions says how clients use an HTTP server.
type LoadOptions struct {
	Host    *Host          `json:"-"` // of the clients; nil: they are where this process is
	Server  netip.AddrPort // that they connect to
	Request Request        // that they make
	TLS     *tls.Config    `json:"-"` // nil: HTTP in the clear

	// Apart has the clients be a process of their own on one CPU, where they go before sources, servers and ordinary
	// processes. They need a Host, have no TLS, and the end of the context is an error.
	Apart bool
	CPU   int

	// Connections is the most requests under way. Without a Rate, each connection asks again when it has its answer, or
	// 10 to 100 ms after it could not connect; 0 is one. With a Rate, a request that is due waits for its turn; 0 is no
	// bound.
	Connections int
	Rate        float64 // requests per second that are due whether or not earlier ones were answered; 0: none
	KeepAlive   bool    // uses connections again; otherwise, each request has a new one

	Timeout  time.Duration // of a request, connecting included, and with a Rate from when it was due; 0: 1 s
	Duration time.Duration // in which requests begin; 0: until the context ends
	Requests uint64        // to begin; 0: no bound
	Interval time.Duration // between samples; 0: 200 ms
	OnSample func(Sample)  `json:"-"` // called at every interval from one goroutine, if set
}

// Sample is what clients got in one interval. With a Rate, a request's time counts from when it was due.
type Sample struct {
	Time   time.Duration `json:"time_ns"` // end of the interval, since the beginning
	OK     uint64        `json:"ok"`      // requests answered
	Failed uint64        `json:"failed"`  // requests that failed or timed out
	Rate   float64       `json:"rate"`    // requests answered per second; 0 when Late
	P50    time.Duration `json:"p50_ns"`  // of those answered
	P99    time.Duration `json:"p99_ns"`
	Late   bool          `json:"late,omitempty"` // no more requests began: the rest of those under way
}

// LoadSummary is what clients got altogether.
type LoadSummary struct {
	Time        time.Duration     `json:"time_ns"` // in which requests began
	OK          uint64            `json:"ok"`
	Failed      uint64            `json:"failed"`
	Interrupted uint64            `json:"interrupted,omitempty"` // under way when the context ended; neither of both
	Errors      map[string]uint64 `json:"errors,omitempty"`      // failures by kind
	Rate        float64           `json:"rate"`                  // requests answered per second of Time
	Bytes       uint64            `json:"octets"`                // of the answers' bodies

	Latency // of the requests that were answered

	// Phases are the parts of the requests that were answered, in the order in which they happen.
	Phases []PhaseTimes `json:"phases"`
}

// Latency is how long requests took, or a part of each of them.
type Latency struct {
	Mean time.Duration `json:"mean_ns"`
	P50  time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
	P999 time.Duration `json:"p999_ns"`
	Max  time.Duration `json:"max_ns"`
}

// PhaseTimes is how long a part of the requests took.
type PhaseTimes struct {
	Name     string `json:"name"`
	Requests uint64 `json:"requests"` // that had this part: with KeepAlive, few connect
	Latency
}

// Load runs clients until the duration, the number of requests or the context is over, and returns the summary. Of
// requests under way, it waits for the outcome, except when the context ended, which is no error.
func Load(ctx context.Context, o LoadOptions) (LoadSummary, error) {
	o = o.withDefaults()
	if o.Apart {
		return o.start(ctx)
	}
	c, err := newClient(o)
	if err != nil {
		return LoadSummary{}, err
	}
	defer c.closeIdle()
	begin, stop := ctx, context.CancelFunc(func() {})
	if o.Duration > 0 {
		begin, stop = context.WithTimeout(ctx, o.Duration)
	}
	defer stop()
	sampler := c.startSampler()
	var under sync.WaitGroup
	started := make(chan struct{})
	if o.Rate > 0 {
		under.Go(func() { c.openLoop(ctx, &under, started) })
	} else {
		under.Go(func() { c.closedLoop(ctx, begin, started) })
	}
	select {
	case <-begin.Done():
	case <-started:
	}
	took := sampler.over()
	under.Wait()
	sampler.stop()
	return c.record.summary(took), nil
}

func (o LoadOptions) withDefaults() LoadOptions {
	if o.Connections == 0 && o.Rate == 0 {
		o.Connections = 1
	}
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	if o.Interval == 0 {
		o.Interval = 200 * time.Millisecond
	}
	return o
}

// client is the clients of one call of Load.
type client struct {
	LoadOptions
	began  time.Time
	record *recorder
	bytes  []byte // of a request

	mu   sync.Mutex
	idle []*connection
}

func newClient(o LoadOptions) (*client, error) {
	if o.Rate < 0 || o.Connections < 0 {
		return nil, errors.New("load: rate and connections must not be negative")
	}
	request, err := o.Request.bytes(o.Server, o.KeepAlive)
	if err != nil {
		return nil, err
	}
	return &client{LoadOptions: o, bytes: request, began: time.Now(), record: newRecorder(o.Timeout)}, nil
}

// closedLoop has each connection ask again when it has its answer, until begin ends.
func (c *client) closedLoop(ctx, begin context.Context, started chan struct{}) {
	defer close(started)
	var asked atomic.Uint64
	next := func() bool { return !ended(begin) && (c.Requests == 0 || asked.Add(1) <= c.Requests) }
	var workers sync.WaitGroup
	for range c.Connections {
		workers.Go(func() {
			var wait time.Duration
			for next() {
				if wait > 0 && sleep(begin, wait) != nil {
					return
				}
				wait = afterwards(wait, c.request(ctx, time.Now()))
			}
		})
	}
	workers.Wait()
}

// How long a connection waits before it tries again where it could not connect: clients do not ask a closed port ten
// thousands of times a second, and the attempts would only measure this host.
const (
	firstWait   = 10 * time.Millisecond
	longestWait = 100 * time.Millisecond
)

// atOnce are the kinds of failures that come before any packet had to be waited for.
var atOnce = []string{FailedRefused, FailedUnreachable, FailedPorts, FailedDescriptors, FailedForbidden}

// afterwards is how long to wait before the next request, after one that ended with err and had to wait for so long.
func afterwards(waited time.Duration, err error) time.Duration {
	if err == nil || !slices.Contains(atOnce, cause(err)) {
		return 0
	}
	return max(firstWait, min(2*waited, longestWait))
}

// openLoop begins requests at fixed times, as independent users do. A server that answers late cannot slow them down,
// and the times that requests wait for their turn are not left out ("coordinated omission": Gil Tene, How NOT to
// Measure Latency). Waiting for a connection delays the requests that follow, but their times count from when they are
// due.
func (c *client) openLoop(ctx context.Context, under *sync.WaitGroup, started chan struct{}) {
	defer close(started)
	var slots chan struct{}
	if c.Connections > 0 {
		slots = make(chan struct{}, c.Connections)
	}
	for n := uint64(0); c.Requests == 0 || n < c.Requests; n++ {
		at := time.Duration(float64(n) / c.Rate * float64(time.Second))
		if c.Duration > 0 && at >= c.Duration || ended(ctx) {
			return
		}
		due := c.began.Add(at)
		if sleepUntil(ctx, due) != nil || !takeSlot(ctx, slots) {
			return
		}
		under.Go(func() {
			c.request(ctx, due)
			if slots != nil {
				<-slots
			}
		})
	}
}

// finest is the part of a wait that the Go runtime's timers cannot do: they are up to a millisecond late.
const finest = 2 * time.Millisecond

// sleepUntil waits until a moment, to some ten microseconds, or returns the error of the context if it ends first.
func sleepUntil(ctx context.Context, t time.Time) error {
	if left := time.Until(t); left > finest {
		if err := sleep(ctx, left-finest); err != nil {
			return err
		}
	}
	if left := time.Until(t); left > 0 {
		rest := unix.NsecToTimespec(int64(left))
		_ = unix.Nanosleep(&rest, nil) // a signal may end it early, which does not matter
	}
	return ctx.Err()
}

// takeSlot waits for a free slot, of which there is always one without slots. It returns false when ctx ends first.
func takeSlot(ctx context.Context, slots chan struct{}) bool {
	if slots == nil {
		return true
	}
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
