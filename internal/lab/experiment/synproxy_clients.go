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

// visit has clients connect for so long beside a flood.
func (s *synproxySite) visit(ctx context.Context, l load, duration time.Duration, seed uint64) (v *synproxyVisit, err error) {
	if err := s.Server.FlushConntrack(); err != nil {
		return nil, err
	}
	stop, err := s.beginLoad(ctx, l, seed)
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

// beginLoad starts a flood at the server; see begin.
func (s *synproxySite) beginLoad(ctx context.Context, l load, seed uint64) (stop func() (mean, least float64, err error), err error) {
	if l.flood == nil {
		return s.begin(ctx, nil, 0, seed)
	}
	return s.begin(ctx, []lab.Flow{l.flood.Flow(s.web.Addr(), s.web.Port())}, l.pps, seed)
}
