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

// TalkOptions are options for clients of a UDP server that sends each datagram back. One thread does the work with as few system calls as possible:
// some ten thousand datagrams per second during a flood on the same CPU.
type TalkOptions struct {
	Host     *Host          `json:"-"` // of the clients
	Server   netip.AddrPort // IPv4
	From     []netip.Addr   // the clients' addresses, used in turn; each must be one of the host's own
	Clients  int            // each has a socket
	Port     uint16         // of the first client; the others have the ports after it
	Payload  []byte         // of each datagram; its last TalkStamp bytes are overwritten
	Join     []byte         // not nil: there is no Payload. Each client begins with this message of A2S or RakNet, and replies to the server until it is served, once.
	Rate     float64        // datagrams per second of all clients, also if earlier ones were not answered; 0: a client sends after its answer
	Duration time.Duration  // in which datagrams are sent
	Timeout  time.Duration  // of an answer, since its datagram was due
	CPU      int            // of the clients' process
	Urgent   bool           // keeps most other processes off this CPU; for measurements
}

// TalkStamp is the number of bytes at the end of a payload that identify its answer.
const TalkStamp = 16

// TalkSummary contains the clients' results. The time of a datagram starts when the datagram is due.
type TalkSummary struct {
	Sent     uint64        // datagrams
	Answered uint64        // number answered in time; with Join: number of clients served
	Clients  int           // that had an answer
	Latency  Latency       // from the due time until the answer
	Took     time.Duration // in which datagrams were sent
	Stalled  time.Duration // the longest time between two polls of the clients; 1 ms if they have the CPU
}

// Share returns the share of the datagrams with an answer; NaN if there were none.
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

// talkName is the name under which this program runs as a process of UDP clients.
const talkName = "floodwall-talk"

// Talk makes clients send datagrams for the duration, or until ctx ends, and waits for all answers.
func Talk(ctx context.Context, o TalkOptions) (s TalkSummary, err error) {
	if err := o.check(); err != nil {
		return s, fmt.Errorf("talk: %w", err)
	}
	if err := follow(ctx, o.Host, role{name: talkName, cpu: o.CPU, priority: clientPriority(o.Urgent), input: o}, func(got TalkSummary) { s = got }); err != nil {
		return s, fmt.Errorf("talk: %w", cmp.Or(ctx.Err(), err))
	}
	return s, nil
}

// run runs the clients on the calling thread.
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
