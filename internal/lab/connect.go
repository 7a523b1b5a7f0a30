// SPDX-License-Identifier: Apache-2.0

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

// ConnectOptions are options for clients that each open a connection, send a request, and reset the connection. Unlike Load, one thread runs all
// clients, with as little work of the kernel as possible. It makes some ten thousand connections per second during a flood on the same CPU.
type ConnectOptions struct {
	Host     *Host          `json:"-"` // of the clients
	Server   netip.AddrPort // IPv4
	From     []netip.Addr   // the clients' addresses, used in turn; each must be one of the host's own
	Request  []byte         // the request of each client
	Rate     float64        // connections per second, due whether or not earlier ones succeeded
	Duration time.Duration  // time in which connections start
	Timeout  time.Duration  // time limit for a connection with its answer, since the connection was due
	CPU      int            // CPU of the clients' process
	Urgent   bool           // keep most other processes off that CPU in this time; for measurements
}

// ConnectSummary has the results of the clients. Times count from the moment when a connection was due.
type ConnectSummary struct {
	Begun    uint64            // connections
	OK       uint64            // number of connections with an answer
	Errors   map[string]uint64 // number of connections without an answer, by kind of failure
	Connect  Latency           // time until the connection was established; only connections with an answer
	Answered Latency           // time until the first byte of the answer
	Took     time.Duration     // time in which connections were started
	Stalled  time.Duration     // the longest time between two polls of the clients; 1 ms if no other process uses their CPU
}

// Share returns the share of the connections with an answer, or NaN if there were no connections.
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

// connectName is the name of this program when it runs as the clients' process.
const connectName = "floodwall-clients"

// Connect makes clients open connections for the duration, or until ctx ends, and waits until all of the connections have ended. A client resets its
// connection after the answer. So neither end remembers the connection, and the port can be used again at once.
func Connect(ctx context.Context, o ConnectOptions) (s ConnectSummary, err error) {
	if err := o.check(); err != nil {
		return s, fmt.Errorf("connect: %w", err)
	}
	if err := follow(ctx, o.Host, role{name: connectName, cpu: o.CPU, priority: clientPriority(o.Urgent), input: o}, func(got ConnectSummary) { s = got }); err != nil {
		return s, fmt.Errorf("connect: %w", cmp.Or(ctx.Err(), err))
	}
	return s, nil
}

// run runs the clients on the calling thread.
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
