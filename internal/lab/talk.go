// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
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

// talker sends and receives the datagrams of all clients.
type talker struct {
	*TalkOptions
	*poller
	session  uint32 // distinguishes answers from those of an earlier session
	late     int    // number of clients whose wait for an answer has been checked
	clients  []talking
	answers  Times
	payload  []byte
	received []byte
}

// talking is a client.
type talking struct {
	fd       int
	waits    bool          // for an answer to its last datagram
	since    time.Duration // time at which this datagram was due; with Join: time of the first message
	answered bool          // at least once
}

func newTalker(o *TalkOptions) (t *talker, err error) {
	t = &talker{TalkOptions: o, answers: newTimes(), session: rand.Uint32()}
	t.payload, t.received = append(t.payload, o.Payload...), make([]byte, max(len(o.Payload)+1, mostGameMessage))
	if t.poller, err = newPoller(o.Rate, o.Duration); err != nil {
		return nil, err
	}
	for i := range o.Clients {
		fd, err := o.open(i)
		if err != nil {
			t.close()
			return nil, err
		}
		t.clients = append(t.clients, talking{fd: fd})
		in := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if err := unix.EpollCtl(t.epoll, unix.EPOLL_CTL_ADD, fd, &in); err != nil {
			t.close()
			return nil, err
		}
	}
	return t, nil
}

// open makes the socket of a client.
func (o *TalkOptions) open(i int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	from := o.From[i%len(o.From)]
	if err = unix.Bind(fd, &unix.SockaddrInet4{Addr: from.As4(), Port: int(o.Port) + i}); err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: o.Server.Addr().As4(), Port: int(o.Server.Port())})
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, fmt.Errorf("client %v:%d: %w", from, int(o.Port)+i, err)
	}
	return fd, nil
}

func (t *talker) close() {
	for _, c := range t.clients {
		_ = unix.Close(c.fd)
	}
	_ = unix.Close(t.epoll)
}

func (t *talker) run() error {
	t.start = time.Now()
	if t.Rate == 0 {
		for i := range t.clients {
			t.send(i, 0)
		}
	}
	for {
		now := t.turn()
		until, more := now+time.Millisecond, now < t.Duration
		if t.Rate > 0 {
			until, more, _ = t.startDue(now, t.sendNext)
		} else if more {
			t.resend(now)
		}
		if !more && now >= t.Duration+t.Timeout {
			return nil
		}
		if err := t.look(until, t.take); err != nil {
			return err
		}
	}
}

// sendNext sends a datagram of the next client.
func (t *talker) sendNext(due time.Duration) error {
	t.send(int(t.started%uint64(len(t.clients))), due)
	return nil
}

// resend checks some clients. A client that has waited for too long sends its next datagram.
func (t *talker) resend(now time.Duration) {
	for range burst {
		t.late = (t.late + 1) % len(t.clients)
		if c := &t.clients[t.late]; c.waits && now-c.since > t.Timeout {
			t.send(t.late, now)
		}
	}
}

// send sends a datagram of a client. If the device refuses the datagram, it is lost.
func (t *talker) send(i int, due time.Duration) {
	if t.Join != nil {
		t.join(i, due)
		return
	}
	stamp := t.payload[len(t.payload)-TalkStamp:]
	binary.NativeEndian.PutUint64(stamp, uint64(due))
	binary.NativeEndian.PutUint32(stamp[8:], t.session)
	binary.NativeEndian.PutUint32(stamp[12:], uint32(t.started))
	_, _ = unix.Write(t.clients[i].fd, t.payload)
	t.started++
	t.last = time.Since(t.start)
	t.clients[i].waits, t.clients[i].since = true, due
}

// take reads one answer of a client. If there are more, epoll reports the client again.
func (t *talker) take(e unix.EpollEvent) {
	c := &t.clients[e.Fd]
	n, err := unix.Read(c.fd, t.received)
	if err == nil && t.Join != nil {
		t.joined(c, t.received[:n])
		return
	}
	if err != nil || n != len(t.payload) {
		return
	}
	stamp := t.received[n-TalkStamp:]
	if binary.NativeEndian.Uint32(stamp[8:]) != t.session {
		return
	}
	now, due := time.Since(t.start), time.Duration(binary.NativeEndian.Uint64(stamp))
	if now-due > t.Timeout {
		return
	}
	t.answers.add(now - due)
	c.answered = true
	if c.waits = c.waits && c.since != due; t.Rate == 0 && !c.waits && now < t.Duration {
		t.send(int(e.Fd), now)
	}
}

func (t *talker) summary() TalkSummary {
	s := TalkSummary{Sent: t.started, Answered: uint64(t.answers.Count()), Latency: t.answers.Latency(), Took: t.last, Stalled: t.stalled}
	for _, c := range t.clients {
		if c.answered {
			s.Clients++
		}
	}
	return s
}
