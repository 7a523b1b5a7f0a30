package lab

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"
)

// talker sends and receives datagrams on one thread. It never waits for a single datagram.
type talker struct {
	*TalkOptions
	epoll    int
	start    time.Time
	session  uint32 // distinguishes answers from those of an earlier session
	sent     uint64
	late     int // number of clients whose wait for an answer has been checked
	last     time.Duration
	looked   time.Duration // time of the last poll
	stalled  time.Duration // the longest time between two polls
	clients  []talking
	answers  histogram
	payload  []byte
	received []byte
	events   [64]unix.EpollEvent
}

// talking is a client.
type talking struct {
	fd       int
	waits    bool          // for an answer to its last datagram
	since    time.Duration // time at which this datagram was due; with Join: time of the first message
	answered bool          // at least once
}

func newTalker(o *TalkOptions) (t *talker, err error) {
	t = &talker{TalkOptions: o, answers: newRecorder(o.Timeout).all, session: rand.Uint32()}
	t.payload, t.received = append(t.payload, o.Payload...), make([]byte, max(len(o.Payload)+1, mostGameMessage))
	if t.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
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

// due returns the time at which the next datagram is due; false if there are no more.
func (t *talker) due() (time.Duration, bool) {
	at := time.Duration(float64(t.sent) / t.Rate * float64(time.Second))
	return at, at < t.Duration
}

func (t *talker) run() error {
	t.start = time.Now()
	if t.Rate == 0 {
		for i := range t.clients {
			t.send(i, 0)
		}
	}
	for {
		now := time.Since(t.start)
		t.stalled, t.looked = max(t.stalled, now-t.looked), now
		until, more := now+time.Millisecond, now < t.Duration
		if t.Rate > 0 {
			until, more = t.sendDue(now)
		} else if more {
			t.resend(now)
		}
		if !more && now >= t.Duration+t.Timeout {
			return nil
		}
		if err := t.look(max(0, until-now)); err != nil {
			return err
		}
	}
}

// sendDue sends the due datagrams. The result until is the time at which the next datagram is due; more is false if there are no more.
func (t *talker) sendDue(now time.Duration) (until time.Duration, more bool) {
	due, more := t.due()
	for range burst {
		if !more || due > now {
			break
		}
		t.send(int(t.sent%uint64(len(t.clients))), due)
		due, more = t.due()
	}
	until = now + time.Millisecond
	if more {
		until = min(until, due)
	}
	return until, more
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
	binary.NativeEndian.PutUint32(stamp[12:], uint32(t.sent))
	_, _ = unix.Write(t.clients[i].fd, t.payload)
	t.sent++
	t.last = time.Since(t.start)
	t.clients[i].waits, t.clients[i].since = true, due
}

// look polls for events, and reads the answers.
func (t *talker) look(wait time.Duration) error {
	n, err := waitEvents(t.epoll, t.events[:], wait)
	if err != nil {
		return err
	}
	for _, e := range t.events[:n] {
		t.take(int(e.Fd))
	}
	return nil
}

// take reads one answer of a client. If there are more, epoll reports the client again.
func (t *talker) take(i int) {
	c := &t.clients[i]
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
		t.send(i, now)
	}
}

func (t *talker) summary() TalkSummary {
	s := TalkSummary{Sent: t.sent, Answered: uint64(t.answers.TotalCount()), Latency: t.answers.latency(), Took: t.last, Stalled: t.stalled}
	for _, c := range t.clients {
		if c.answered {
			s.Clients++
		}
	}
	return s
}
