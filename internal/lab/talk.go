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

// TalkOptions says how clients of a UDP server that sends each datagram back talk to it. One thread does it with the least of the kernel's work,
// for some ten thousand datagrams per second beside a flood on the same CPU.
type TalkOptions struct {
	Host     *Host          `json:"-"` // of the clients
	Server   netip.AddrPort // IPv4
	From     []netip.Addr   // the clients' addresses, which take turns; each must be one of the host's own
	Clients  int            // each has a socket
	Port     uint16         // of the first client; those that follow have the next ones
	Payload  []byte         // of each datagram; its last TalkStamp bytes are overwritten
	Join     []byte         // not nil: no Payload, but clients begin with this message of A2S or RakNet, and send what is asked of them until they are served, once each
	Rate     float64        // datagrams per second of all clients that are due whether or not earlier ones were answered; 0: a client sends when it has its answer
	Duration time.Duration  // in which datagrams are sent
	Timeout  time.Duration  // of an answer, from when its datagram was due
	CPU      int            // of the clients' process
	Urgent   bool           // lets few other processes have that CPU meanwhile; for measurements
}

// TalkStamp is how many bytes at the end of a payload tell answers apart.
const TalkStamp = 16

// TalkSummary is what the clients got. Times count from when a datagram was due.
type TalkSummary struct {
	Sent     uint64        // datagrams
	Answered uint64        // of these, in time; of those who join, those who were served
	Clients  int           // that had an answer
	Latency  Latency       // until the answer
	Took     time.Duration // in which datagrams were sent
	Stalled  time.Duration // the longest that the clients did not look what there is to do; 1 ms when they have the CPU
}

// Share is the part of the datagrams that had an answer; NaN when there were none.
func (s *TalkSummary) Share() float64 {
	if s.Sent == 0 {
		return math.NaN()
	}
	return float64(s.Answered) / float64(s.Sent)
}

func (o *TalkOptions) check() error {
	switch {
	case !o.Server.Addr().Is4():
		return fmt.Errorf("server %s: must be an IPv4 address with a port", o.Server)
	case len(o.From) == 0 || o.Clients <= 0:
		return errors.New("no clients")
	case o.Port == 0 || int(o.Port)+o.Clients > 1<<16:
		return fmt.Errorf("%d clients from port %d on: ports end at 65535", o.Clients, o.Port)
	case o.Join != nil && o.Rate == 0:
		return errors.New("clients that join need a rate")
	case o.Join == nil && len(o.Payload) < TalkStamp:
		return fmt.Errorf("payload of %d bytes: must have at least %d", len(o.Payload), TalkStamp)
	case o.Rate < 0 || math.IsNaN(o.Rate) || o.Duration <= 0 || o.Timeout <= 0:
		return fmt.Errorf("rate %g, duration %v, timeout %v: must be positive", o.Rate, o.Duration, o.Timeout)
	}
	for _, a := range o.From {
		if !a.Is4() {
			return fmt.Errorf("client %s: must be an IPv4 address", a)
		}
	}
	return nil
}

// Talk has clients send datagrams for the duration, or until ctx ends, and waits for the answers to all.
func Talk(ctx context.Context, o TalkOptions) (s TalkSummary, err error) {
	if err := o.check(); err != nil {
		return s, fmt.Errorf("talk: %w", err)
	}
	if err := o.start(ctx, &s); err != nil {
		return s, fmt.Errorf("talk: %w", cmp.Or(ctx.Err(), err))
	}
	return s, nil
}

// run talks on the calling thread.
func (o *TalkOptions) run() (s TalkSummary, err error) {
	t, err := newTalker(o)
	if err != nil {
		return s, err
	}
	defer t.close()
	if err := t.run(); err != nil {
		return s, err
	}
	return t.summary(), nil
}
