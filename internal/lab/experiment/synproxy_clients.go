package experiment

import (
	"context"
	"errors"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// synproxyClientRate is the connections per second of all clients: a fifth of the talk's, as many as leave the attacker, who
// shares their CPU and goes behind them, the time that it needs for barFlood.
const synproxyClientRate = 2_000

// synproxyClientTimeout is how long clients that connect for some time wait for an answer: at most until a SYN that was lost would be
// sent again.
func synproxyClientTimeout(duration time.Duration) time.Duration { return min(time.Second, 5*duration) }

// request is what each client asks. nginx answers in one segment.
var request = []byte("GET / HTTP/1.0\r\n\r\n")

// synproxyVisit is what came of some time of connections.
type synproxyVisit struct {
	lab.ConnectSummary
	flood   float64 // packets per second of the attacker that the host took
	least   float64 // in the weakest part of that time
	entries int     // in the flooded host's table of connections, at the end
}

// mostStalled is how long the clients' thread may be without its CPU. Nothing of the experiment takes it for longer; for
// ordinary processes that wait for a CPU beside the attacker, who never sleeps, the kernel takes it for 50 ms of each second
// (kernel/sched/deadline.c, dl_server).
const mostStalled = 5 * time.Millisecond

// disturbed reports whether others had the clients' CPU.
func (v *synproxyVisit) disturbed() bool { return v.Stalled > mostStalled }

func (v *synproxyVisit) completed() float64 { return v.Share() }

// perSecond is the connections that had an answer, per second.
func (v *synproxyVisit) perSecond() float64 { return v.Share() * synproxyClientRate }

// How the attacker sends beside clients, who share its CPU and go before it. They wait for a batch to end, which makes it
// short. Packets come in bursts, as a card's interrupts bring them: each on its own would wake the receive thread, which costs
// both CPUs more than the packet. What the clients keep from being sent in time is sent with the next bursts.
const (
	besideBatch   = 8
	besideBurst   = 64
	besideCatchUp = 3
)

// answersWait is how long answers to the flood wait to be looked at together, which takes less of the CPU that the clients are
// on. At barFlood, a sixth of a veth's places fill meanwhile.
const answersWait = 40 * time.Microsecond

// floodLead is how long before the clients the attacker begins.
const floodLead = 50 * time.Millisecond

// visit has clients connect for so long beside a flood.
func (s *synproxySite) visit(ctx context.Context, l load, duration time.Duration, seed uint64) (v *synproxyVisit, err error) {
	if err := s.Server.FlushConntrack(); err != nil {
		return nil, err
	}
	stop, err := s.begin(ctx, l, seed)
	if err != nil {
		return nil, err
	}
	v = &synproxyVisit{}
	v.ConnectSummary, err = lab.Connect(ctx, lab.ConnectOptions{
		Host: s.clients.Host, Server: s.web, From: clientAddrs(), Request: request,
		Rate: synproxyClientRate, Duration: duration, Timeout: synproxyClientTimeout(duration), CPU: rig.SourceCPU, Urgent: true,
	})
	var stopped error
	v.flood, v.least, stopped = stop()
	table, looked := s.Server.Conntrack()
	v.entries = table.Entries
	return v, errors.Join(err, stopped, looked)
}

// begin starts a flood, which goes on until stop ends it. stop returns how many packets per second of it the host took from
// begin to stop, and in the weakest part of that time.
func (s *synproxySite) begin(ctx context.Context, l load, seed uint64) (stop func() (mean, least float64, err error), err error) {
	if l.flood == nil {
		return func() (float64, float64, error) { return 0, 0, nil }, nil
	}
	source, err := s.source(l.flood, lab.SourceOptions{
		Batch: besideBatch, Burst: besideBurst, Rate: l.pps, CatchUp: besideCatchUp, Seed: seed, Apart: true,
	})
	if err != nil {
		return nil, err
	}
	if err := s.Out.Coalesce(answersWait); err != nil {
		return nil, errors.Join(err, source.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	for wait := true; wait; wait = source.Sent() == 0 {
		select {
		case err := <-done:
			cancel()
			return nil, errors.Join(err, errors.New("the flood ended before it began"), source.Close(), s.Out.Coalesce(0))
		case <-time.After(floodLead):
		}
	}
	w := watchRate(s.In.Received)
	return func() (float64, float64, error) {
		mean, least, err := w.stop()
		cancel()
		return mean, least, errors.Join(err, <-done, source.Close(), s.Out.Coalesce(0))
	}, nil
}
