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

	"golang.org/x/sys/unix"
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

// connector opens the connections of all clients.
type connector struct {
	*ConnectOptions
	*poller
	failed   [unix.EHWPOISON + 1]uint64 // number of failures by errno; 0: the server closed the connection
	late     uint64
	waiting  []attempt  // the running connections, by file descriptor
	queue    []deadline // deadlines in the order in which their connections were started
	first    int        // index of the first connection in queue that may still be running
	live     int
	connects Times
	answers  Times
	server   unix.SockaddrInet4
	from     []unix.SockaddrInet4
	buffer   [4096]byte
}

// attempt is a running connection.
type attempt struct {
	number    uint64 // from 1; 0: none
	due       time.Duration
	connected time.Duration // 0: not yet
}

// deadline is the deadline of an attempt. The file descriptor may already belong to another attempt.
type deadline struct {
	fd     int
	number uint64
	due    time.Duration
}

func newConnector(o *ConnectOptions) (c *connector, err error) {
	c = &connector{ConnectOptions: o, connects: newTimes(), answers: newTimes()}
	c.server = unix.SockaddrInet4{Addr: o.Server.Addr().As4(), Port: int(o.Server.Port())}
	for _, a := range o.From {
		c.from = append(c.from, unix.SockaddrInet4{Addr: a.As4()})
	}
	// All memory is allocated before the measurement.
	c.queue = make([]deadline, 0, int(o.Rate*o.Duration.Seconds())+1)
	c.waiting = make([]attempt, 1024+int(o.Rate*o.Timeout.Seconds()))
	c.poller, err = newPoller(o.Rate, o.Duration)
	return c, err
}

// close closes the remaining connections.
func (c *connector) close() {
	for fd := range c.waiting {
		if c.waiting[fd].number > 0 {
			_ = unix.Close(fd)
		}
	}
	_ = unix.Close(c.epoll)
}

func (c *connector) run() error {
	c.start = time.Now()
	for {
		now := c.turn()
		until, more, err := c.startDue(now, func(due time.Duration) error { return c.begin(due, now) })
		if err != nil {
			return err
		}
		c.expire(now)
		if !more && c.live == 0 {
			return nil
		}
		if err := c.look(until, c.proceed); err != nil {
			return err
		}
	}
}

// begin opens a connection.
func (c *connector) begin(due, now time.Duration) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if fd >= len(c.waiting) {
		c.waiting = append(c.waiting, make([]attempt, fd)...)
	}
	c.started++
	c.last = now
	c.waiting[fd] = attempt{number: c.started, due: due}
	c.queue = append(c.queue, deadline{fd, c.started, due})
	c.live++
	if err := c.connect(fd); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// connect connects a socket from the next source address. It also sets an option by which closing the socket resets the connection.
func (c *connector) connect(fd int) error {
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return err
	}
	if err := unix.Bind(fd, &c.from[c.started%uint64(len(c.from))]); err != nil {
		return err
	}
	switch err := unix.Connect(fd, &c.server); err {
	case nil, unix.EINPROGRESS:
	default:
		c.fail(fd, err)
		return nil
	}
	edges := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET, Fd: int32(fd)}
	return unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, fd, &edges)
}

// proceed handles the events of a connection.
func (c *connector) proceed(e unix.EpollEvent) {
	fd, now := int(e.Fd), time.Since(c.start)
	a := &c.waiting[fd]
	if a.number == 0 {
		return
	}
	if a.connected == 0 {
		if _, err := unix.Write(fd, c.Request); err == unix.EAGAIN {
			return
		} else if err != nil {
			c.fail(fd, err)
			return
		}
		a.connected = now
	}
	if e.Events&(unix.EPOLLIN|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		return
	}
	switch n, err := unix.Read(fd, c.buffer[:]); {
	case n > 0:
		c.connects.add(a.connected - a.due)
		c.answers.add(now - a.due)
		c.end(fd)
	case err != unix.EAGAIN:
		c.fail(fd, err)
	}
}

// expire ends connections whose time limit is over.
func (c *connector) expire(now time.Duration) {
	for ; c.first < len(c.queue); c.first++ {
		d := c.queue[c.first]
		if c.waiting[d.fd].number != d.number {
			continue
		}
		if now-d.due < c.Timeout {
			return
		}
		c.late++
		c.end(d.fd)
	}
}

// fail ends a failed connection and counts the error. A nil error means that the server closed the connection.
func (c *connector) fail(fd int, err error) {
	errno, _ := err.(unix.Errno)
	c.failed[min(int(errno), len(c.failed)-1)]++
	c.end(fd)
}

func (c *connector) end(fd int) {
	c.waiting[fd] = attempt{}
	c.live--
	_ = unix.Close(fd)
}

func (c *connector) summary() ConnectSummary {
	s := ConnectSummary{
		Begun: c.started, OK: uint64(c.answers.Count()), Errors: make(map[string]uint64),
		Connect: c.connects.Latency(), Answered: c.answers.Latency(), Took: c.last, Stalled: c.stalled,
	}
	if c.late > 0 {
		s.Errors[FailedTimeout] = c.late
	}
	for errno, n := range c.failed {
		if n > 0 {
			var err error = unix.Errno(errno)
			kind := FailedClosed
			if errno > 0 {
				kind = cause(err)
			}
			s.Errors[kind] += n
		}
	}
	return s
}
