package bench

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// The clients: see lab.Connect. A SYN that is lost is sent again after a second, which is too late.
const (
	synClientRate = 10_000 // connections per second, of all
	synTimeout    = time.Second
)

// synRequest is what each client asks. nginx answers in one segment.
var synRequest = []byte("GET / HTTP/1.0\r\n\r\n")

// synVisit is what came of some time of connections.
type synVisit struct {
	lab.ConnectSummary
	flood   float64 // packets per second that the attacker sent
	entries int     // in the flooded host's table of connections, at the end
}

func (v *synVisit) completed() float64 { return v.Share() }

// perSecond is the connections that had an answer, per second.
func (v *synVisit) perSecond() float64 { return v.Share() * synClientRate }

// The attacker begins before the clients, and ends when they have ended, or so long afterwards.
const (
	floodLead = 50 * time.Millisecond
	floodTail = 2 * synTimeout
)

// visit has clients connect for so long beside a flood.
func (s *synSite) visit(ctx context.Context, l synLoad, duration time.Duration, seed uint64) (v *synVisit, err error) {
	if err := s.server.FlushConntrack(); err != nil {
		return nil, err
	}
	stop, err := s.begin(ctx, l, floodLead+duration+floodTail, seed)
	if err != nil {
		return nil, err
	}
	v = &synVisit{}
	v.ConnectSummary, err = lab.Connect(ctx, lab.ConnectOptions{
		Host: s.clients.Host, Server: s.web, From: synClients(), Request: synRequest,
		Rate: synClientRate, Duration: duration, Timeout: synTimeout, CPU: sourceCPU, Urgent: true,
	})
	var stopped error
	v.flood, stopped = stop()
	table, looked := s.server.Conntrack()
	v.entries = table.Entries
	return v, errors.Join(err, stopped, looked)
}

// begin starts a flood. stop ends it, and returns how many packets per second it sent.
func (s *synSite) begin(ctx context.Context, l synLoad, most time.Duration, seed uint64) (stop func() (float64, error), err error) {
	if l.flood == nil {
		return func() (float64, error) { return 0, nil }, nil
	}
	source, err := s.source(l.flood, l.pps, most, seed)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	time.Sleep(floodLead)
	return func() (float64, error) {
		cancel()
		err := <-done
		pps := float64(source.Sent()) / source.Took().Seconds()
		return pps, errors.Join(err, source.Close())
	}, nil
}
