package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"
)

// ConnectOptions says how many clients open a connection each, ask, and leave. Unlike Load, one thread does it with the
// least of the kernel's work, for some ten thousand connections per second beside a flood on the same CPU.
type ConnectOptions struct {
	Host     *Host          `json:"-"` // of the clients
	Server   netip.AddrPort // IPv4
	From     []netip.Addr   // the clients' addresses, which take turns; each must be one of the host's own
	Request  []byte         // what each sends
	Rate     float64        // connections per second that are due whether or not earlier ones were made
	Duration time.Duration  // in which connections begin
	Timeout  time.Duration  // of a connection with its answer, from when it was due
	CPU      int            // of the clients' process
	Urgent   bool           // lets few other processes have that CPU meanwhile; for measurements
}

// ConnectSummary is what the clients got. Times count from when a connection was due.
type ConnectSummary struct {
	Begun    uint64            // connections
	OK       uint64            // that had an answer
	Errors   map[string]uint64 // the others, by kind
	Connect  Latency           // until the connection stood, of those that had an answer
	Answered Latency           // until the answer began
	Took     time.Duration     // in which connections began
	Stalled  time.Duration     // the longest that the clients did not look what there is to do; 1 ms when they have the CPU
}

// Share is the part of the connections that had an answer; NaN when there were none.
func (s *ConnectSummary) Share() float64 {
	if s.Begun == 0 {
		return math.NaN()
	}
	return float64(s.OK) / float64(s.Begun)
}

func (o *ConnectOptions) check() error {
	switch {
	case !o.Server.Addr().Is4():
		return fmt.Errorf("server %s: must be an IPv4 address with a port", o.Server)
	case len(o.From) == 0:
		return errors.New("no clients' addresses")
	case !(o.Rate > 0) || o.Duration <= 0 || o.Timeout <= 0:
		return fmt.Errorf("rate %g, duration %v, timeout %v: must be positive", o.Rate, o.Duration, o.Timeout)
	}
	for _, a := range o.From {
		if !a.Is4() {
			return fmt.Errorf("client %s: must be an IPv4 address", a)
		}
	}
	return nil
}

// Connect has clients open connections for the duration, or until ctx ends, and waits for the outcome of all. Ports are
// free again at once: a client that has its answer resets the connection, so that neither side remembers it.
func Connect(ctx context.Context, o ConnectOptions) (s ConnectSummary, err error) {
	if err := o.check(); err != nil {
		return s, fmt.Errorf("connect: %w", err)
	}
	if err := o.start(ctx, &s); err != nil {
		return s, fmt.Errorf("connect: %w", cmp.Or(ctx.Err(), err))
	}
	return s, nil
}

// run opens the connections on the calling thread.
func (o *ConnectOptions) run() (s ConnectSummary, err error) {
	c, err := newConnector(o)
	if err != nil {
		return s, err
	}
	defer c.close()
	if err := c.run(); err != nil {
		return s, err
	}
	return c.summary(), nil
}
