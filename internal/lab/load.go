package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// LoadOptions says how clients use an HTTP server.
type LoadOptions struct {
	Host      *Host          // of the clients
	Server    netip.AddrPort // asked for "/"
	Workers   int            // that ask one request after the other; 0: 1. Ignored with Rate.
	Rate      float64        // requests per second that begin whether or not earlier ones were answered; 0: none
	KeepAlive bool           // uses connections again; otherwise, each request has a new one
	Timeout   time.Duration  // of a request, connecting included; 0: 1 s
	Duration  time.Duration  // 0: until the context ends
	Requests  uint64         // requests to begin; 0: no bound
	Interval  time.Duration  // between samples; 0: 200 ms
	OnSample  func(Sample)   // called at every interval from one goroutine, if set
}

// Sample is what clients got in one interval. With a Rate, a request's time counts from when it was due.
type Sample struct {
	Time   time.Duration `json:"time_ns"` // end of the interval, since the beginning
	OK     uint64        `json:"ok"`      // requests answered
	Failed uint64        `json:"failed"`  // requests that failed or timed out
	P50    time.Duration `json:"p50_ns"`  // of those answered
	P99    time.Duration `json:"p99_ns"`
}

// LoadSummary is what clients got altogether.
type LoadSummary struct {
	Time   time.Duration     `json:"time_ns"`
	OK     uint64            `json:"ok"`
	Failed uint64            `json:"failed"`
	Errors map[string]uint64 `json:"errors,omitempty"` // failures by cause
	Rate   float64           `json:"rate"`             // requests answered per second

	// How long the requests that were answered took.
	Mean time.Duration `json:"mean_ns"`
	P50  time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
	P999 time.Duration `json:"p999_ns"`
	Max  time.Duration `json:"max_ns"`
}

// Load runs clients until the duration, the number of requests or the context is over, waits for what is under way,
// and returns the summary. The end of the context is no error.
func Load(ctx context.Context, o LoadOptions) (LoadSummary, error) {
	o = o.withDefaults()
	if o.Rate < 0 || o.Workers < 0 {
		return LoadSummary{}, errors.New("load: rate and workers must not be negative")
	}
	if o.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Duration)
		defer cancel()
	}
	c := newClient(o)
	defer c.transport.CloseIdleConnections()
	stop := make(chan struct{})
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		c.sample(stop)
	}()
	if o.Rate > 0 {
		c.openLoop(ctx)
	} else {
		c.closedLoop(ctx)
	}
	close(stop)
	<-sampled
	return c.record.summary(time.Since(c.began)), nil
}

func (o LoadOptions) withDefaults() LoadOptions {
	if o.Workers == 0 {
		o.Workers = 1
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
	transport *http.Transport
	url       string
	began     time.Time
	record    *recorder
}

func newClient(o LoadOptions) *client {
	c := &client{LoadOptions: o, url: "http://" + o.Server.String() + "/", began: time.Now(), record: newRecorder(o.Timeout)}
	c.transport = &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return o.Host.Dial(ctx, network, o.Server)
		},
		DisableKeepAlives:   !o.KeepAlive,
		DisableCompression:  true,
		MaxIdleConnsPerHost: max(o.Workers, int(o.Rate)),
	}
	return c
}

// closedLoop has each worker ask again when it has its answer.
func (c *client) closedLoop(ctx context.Context) {
	tickets := c.tickets(ctx)
	var wg sync.WaitGroup
	for range c.Workers {
		wg.Go(func() {
			for range tickets {
				c.request(ctx, time.Now())
			}
		})
	}
	wg.Wait()
}

// tickets allows as many requests as may begin, one value each.
func (c *client) tickets(ctx context.Context) <-chan struct{} {
	tickets := make(chan struct{})
	go func() {
		defer close(tickets)
		for n := uint64(0); c.Requests == 0 || n < c.Requests; n++ {
			select {
			case tickets <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return tickets
}

// openLoop begins requests at fixed times, as independent users do. A server that answers late cannot slow them down,
// and the times that requests wait for their turn are not left out ("coordinated omission").
func (c *client) openLoop(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for n := uint64(0); c.Requests == 0 || n < c.Requests; n++ {
		due := c.began.Add(time.Duration(float64(n) / c.Rate * float64(time.Second)))
		if sleep(ctx, time.Until(due)) != nil {
			return
		}
		wg.Go(func() { c.request(ctx, due) })
	}
}

// request asks once and records what came of it. What the end of ctx interrupts did not happen.
func (c *client) request(ctx context.Context, began time.Time) {
	limited, cancel := context.WithDeadline(ctx, began.Add(c.Timeout))
	defer cancel()
	err := c.ask(limited)
	if err != nil && ctx.Err() != nil {
		return
	}
	c.record.add(time.Since(began), err)
}

func (c *client) ask(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return err
	}
	res, err := c.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}

// sample reports intervals until stop, and then the rest.
func (c *client) sample(stop <-chan struct{}) {
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	for last := false; !last; {
		select {
		case <-ticker.C:
		case <-stop:
			last = true
		}
		s := c.record.interval(time.Since(c.began))
		if c.OnSample != nil {
			c.OnSample(s)
		}
	}
}
