// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// LoadOptions are options for clients of an HTTP server.
type LoadOptions struct {
	Host    *Host          `json:"-"` // of the clients; nil: the namespace of this process
	Server  netip.AddrPort // the server's address
	Request Request        // the clients' request
	TLS     *tls.Config    `json:"-"` // nil: HTTP without TLS

	// Apart runs the clients as a process of their own on one CPU, with priority over sources, servers and ordinary processes. They need a Host and
	// cannot use TLS. The end of the context is then an error.
	Apart bool
	CPU   int

	// Connections is the largest number of requests in progress. Without a Rate, each connection sends its next request after the answer, or 10 to
	// 100 ms after it failed to connect; 0 is one connection. With a Rate, a due request waits until the number allows it; 0 is no bound.
	Connections int
	Rate        float64 // requests per second, due whether or not earlier ones were answered; 0: none
	KeepAlive   bool    // reuses connections; otherwise, each request has a new one

	Timeout  time.Duration // of a request, including the connection, and with a Rate since it was due; 0: 1 s
	Duration time.Duration // time in which requests start; 0: until the context ends
	Requests uint64        // to start; 0: no bound
	Interval time.Duration // between samples; 0: 200 ms
	OnSample func(Sample)  `json:"-"` // called at every interval from one goroutine, if set
}

// Sample is the clients' results in one interval. With a Rate, a request's time starts when the request is due.
type Sample struct {
	Time   time.Duration `json:"time_ns"` // end of the interval, since the beginning
	OK     uint64        `json:"ok"`      // requests answered
	Failed uint64        `json:"failed"`  // requests that failed or timed out
	Rate   float64       `json:"rate"`    // requests answered per second; 0 when Late
	P50    time.Duration `json:"p50_ns"`  // of those answered
	P99    time.Duration `json:"p99_ns"`
	Late   bool          `json:"late,omitempty"` // no more requests started; only earlier ones ended
}

// LoadSummary contains the results of all clients.
type LoadSummary struct {
	Time        time.Duration     `json:"time_ns"` // time in which requests began
	OK          uint64            `json:"ok"`
	Failed      uint64            `json:"failed"`
	Interrupted uint64            `json:"interrupted,omitempty"` // under way when the context ended; neither answered nor failed
	Errors      map[string]uint64 `json:"errors,omitempty"`      // failures by kind
	Rate        float64           `json:"rate"`                  // requests answered per second of Time
	Bytes       uint64            `json:"octets"`                // of the answers' bodies

	Latency // of the answered requests

	// Phases are the parts of the answered requests, in their order.
	Phases []PhaseTimes `json:"phases"`
}

// Latency contains the times of requests, or of a part of them.
type Latency struct {
	Mean time.Duration `json:"mean_ns"`
	P50  time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
	P999 time.Duration `json:"p999_ns"`
	Max  time.Duration `json:"max_ns"`
}

// PhaseTimes contains the times of a part of the requests.
type PhaseTimes struct {
	Name     string `json:"name"`
	Requests uint64 `json:"requests"` // requests with this part: with KeepAlive, few connect
	Latency
}

// Load runs clients until the duration, the number of requests or the context is over, and returns the summary. It waits for the results of requests
// in progress. If the context ended, it does not wait, and returns no error.
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

// client is the state of all clients of one call of Load.
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
	return &client{LoadOptions: o, bytes: request, began: time.Now(), record: newRecorder()}, nil
}

// closedLoop makes each connection send its next request after the answer, until begin ends.
func (c *client) closedLoop(ctx, begin context.Context, started chan struct{}) {
	defer close(started)
	var asked atomic.Uint64
	next := func() bool { return !ended(begin) && (c.Requests == 0 || asked.Add(1) <= c.Requests) }
	var workers sync.WaitGroup
	for range c.Connections {
		workers.Go(func() {
			var wait time.Duration
			for next() {
				if wait > 0 && (sleep(begin, wait) != nil || ended(begin)) { // on a busy machine a pause may end after the load
					return
				}
				wait = afterwards(wait, c.request(ctx, time.Now()))
			}
		})
	}
	workers.Wait()
}

// The pauses of a connection after it failed to connect, before it tries again. Real clients do not try a closed port ten thousand times a second,
// and such tries would only measure this host.
const (
	firstWait   = 10 * time.Millisecond
	longestWait = 100 * time.Millisecond
)

// atOnce contains the kinds of failures that need no wait for a packet.
var atOnce = []string{FailedRefused, FailedUnreachable, FailedPorts, FailedDescriptors, FailedForbidden}

// afterwards returns the pause before the next request. The previous request ended with err after it waited for this time.
func afterwards(waited time.Duration, err error) time.Duration {
	if err == nil || !slices.Contains(atOnce, cause(err)) {
		return 0
	}
	return max(firstWait, min(2*waited, longestWait))
}

// openLoop starts requests at fixed times, like independent users. A late server cannot slow them down, and the times that requests wait are included
// ("coordinated omission": Gil Tene, How NOT to Measure Latency). Waiting for a connection delays the next requests, but their times start when they
// are due.
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

// finest is the last part of a wait, for which the Go runtime's timers are too coarse: they are up to a millisecond late.
const finest = 2 * time.Millisecond

// sleepUntil waits until a time, to some ten microseconds. If the context ends first, it returns its error.
func sleepUntil(ctx context.Context, t time.Time) error {
	if left := time.Until(t); left > finest {
		if err := sleep(ctx, left-finest); err != nil {
			return err
		}
	}
	if left := time.Until(t); left > 0 {
		rest := unix.NsecToTimespec(int64(left))
		_ = unix.Nanosleep(&rest, nil) // a signal may end it early, which does no harm
	}
	return ctx.Err()
}

// takeSlot waits for a free slot. Without slots it does not wait. It returns false if ctx ends first.
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

// loadName is the name under which this program runs as a process of clients of an HTTP server.
const loadName = "floodwall-load"

// loadReport is a line of the process's output: each sample, and at the end the summary.
type loadReport struct {
	Sample  *Sample
	Summary *LoadSummary
}

// loadMain does the work of the process of clients.
func loadMain() error {
	var o LoadOptions
	if err := readInput(&o); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	var failed error
	o.Apart = false
	o.OnSample = func(s Sample) { failed = errors.Join(failed, out.Encode(loadReport{Sample: &s})) }
	summary, err := Load(context.Background(), o)
	return errors.Join(err, failed, out.Encode(loadReport{Summary: &summary}))
}

// start runs the clients in a separate process and reports their results.
func (o *LoadOptions) start(ctx context.Context) (s LoadSummary, err error) {
	if o.TLS != nil || o.Host == nil {
		return s, errors.New("load: clients in a process of their own need a host, and cannot use TLS")
	}
	complete := false
	err = follow(ctx, o.Host, role{name: loadName, cpu: o.CPU, priority: MoreUrgent, input: o}, func(r loadReport) {
		if r.Sample != nil && o.OnSample != nil {
			o.OnSample(*r.Sample)
		}
		if r.Summary != nil {
			s, complete = *r.Summary, true
		}
	})
	switch {
	case ctx.Err() != nil:
		return LoadSummary{}, ctx.Err()
	case err == nil && !complete:
		err = errors.New("the clients' process ended without a summary")
	}
	if err != nil {
		return LoadSummary{}, fmt.Errorf("load: %w", err)
	}
	return s, nil
}
