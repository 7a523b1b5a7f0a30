package lab

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// connector runs all clients on one thread. It never waits for a single connection.
type connector struct {
	*ConnectOptions
	epoll    int
	start    time.Time
	started  uint64
	failed   [unix.EHWPOISON + 1]uint64 // number of failures by errno; 0: the server closed the connection
	late     uint64
	last     time.Duration // time when the last connection was started
	looked   time.Duration // time of the last poll
	stalled  time.Duration // the longest time between two polls
	waiting  []attempt     // the running connections, by file descriptor
	queue    []deadline    // deadlines in the order in which their connections were started
	first    int           // index of the first connection in queue that may still be running
	live     int
	connects histogram
	answers  histogram
	server   unix.SockaddrInet4
	from     []unix.SockaddrInet4
	events   [64]unix.EpollEvent
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

// burst is the maximum number of late connections that are started before the next poll.
const burst = 16

func newConnector(o *ConnectOptions) (c *connector, err error) {
	r := newRecorder(o.Timeout)
	c = &connector{ConnectOptions: o, connects: r.all, answers: r.now}
	c.server = unix.SockaddrInet4{Addr: o.Server.Addr().As4(), Port: int(o.Server.Port())}
	for _, a := range o.From {
		c.from = append(c.from, unix.SockaddrInet4{Addr: a.As4()})
	}
	// All memory is allocated before the measurement.
	c.queue = make([]deadline, 0, int(o.Rate*o.Duration.Seconds())+1)
	c.waiting = make([]attempt, 1024+int(o.Rate*o.Timeout.Seconds()))
	c.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
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

// due returns the time at which the next connection is due. The second result is false if no more connections are due.
func (c *connector) due() (time.Duration, bool) {
	at := time.Duration(float64(c.started) / c.Rate * float64(time.Second))
	return at, at < c.Duration
}

func (c *connector) run() error {
	c.start = time.Now()
	for {
		now := time.Since(c.start)
		c.stalled, c.looked = max(c.stalled, now-c.looked), now
		due, more := c.due()
		for range burst {
			if !more || due > now {
				break
			}
			if err := c.begin(due, now); err != nil {
				return err
			}
			due, more = c.due()
		}
		c.expire(now)
		if !more && c.live == 0 {
			return nil
		}
		until := now + time.Millisecond
		if more {
			until = min(until, due)
		}
		if err := c.look(max(0, until-now)); err != nil {
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

// look waits for events and handles them.
func (c *connector) look(wait time.Duration) error {
	n, err := waitEvents(c.epoll, c.events[:], wait)
	if err != nil {
		return err
	}
	now := time.Since(c.start)
	for _, e := range c.events[:n] {
		c.proceed(int(e.Fd), e.Events, now)
	}
	return nil
}

// waitEvents waits for events of an epoll, and returns their number.
func waitEvents(epoll int, events []unix.EpollEvent, wait time.Duration) (int, error) {
	t := unix.NsecToTimespec(int64(wait))
	// The package x/sys has no wrapper for epoll_pwait2 (Linux 5.11), the only such call with a timeout below a millisecond. With a raw call, Go's
	// runtime does not know that the thread waits. Otherwise the runtime would check the thread every 20 us from another thread on the clients' CPU
	// (Go's runtime/proc.go, sysmon).
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(unsafe.Pointer(&t)), 0, 0)
	if errno == unix.EINTR {
		return 0, nil
	}
	if errno != 0 {
		return 0, fmt.Errorf("epoll_pwait2: %w", errno)
	}
	return int(n), nil
}

// proceed handles the events of a connection.
func (c *connector) proceed(fd int, events uint32, now time.Duration) {
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
	if events&(unix.EPOLLIN|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
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
		Begun: c.started, OK: uint64(c.answers.TotalCount()), Errors: make(map[string]uint64),
		Connect: c.connects.latency(), Answered: c.answers.latency(), Took: c.last, Stalled: c.stalled,
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
