// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// SerialOptions are options of a client that sends one request after another. Unlike Load, the client uses plain blocking system calls on one thread,
// and measures the parts of a request with an error of some hundred nanoseconds.
type SerialOptions struct {
	Host     *Host
	From     netip.Addr     // the client's address, one of the host's own; zero: the kernel chooses
	Server   netip.AddrPort // the server's address, with a new connection for each request
	Request  Request        // the request, in HTTP/1.0: the server closes the connection after its answer
	Body     int            // required length of the answer's body in bytes
	Requests int            // to make and count
	Warmup   int            // requests before the measured ones
	Timeout  time.Duration  // of each wait of a request; 0: 10 s
	CPU      int            // of the client's thread
	Urgent   bool           // keeps most other processes off this CPU; for measurements
}

// SerialPhases are the phases of a request: until the connection is established, until the kernel has the request, until the answer starts, and until
// the server has closed the connection.
var SerialPhases = [...]string{
	phaseNames[phaseConnect], phaseNames[phaseSend], phaseNames[phaseFirstByte], phaseNames[phaseComplete],
}

// SerialSummary contains the times of the requests.
type SerialSummary struct {
	Whole  Times                    // from before the socket was opened
	Phases [len(SerialPhases)]Times // in the order of SerialPhases, each from the end of the previous one
}

// Serial makes the requests. It ends with an error if one fails.
func Serial(ctx context.Context, o SerialOptions) (*SerialSummary, error) {
	c, err := newSerialClient(o)
	if err != nil {
		return nil, fmt.Errorf("serial requests: %w", err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread and its settings end with the goroutine
		done <- c.run(ctx)
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("serial requests: %w", err)
	}
	return &c.summary, nil
}

// serialClient is the state of one call of Serial.
type serialClient struct {
	SerialOptions
	bytes   []byte // of a request
	answer  []byte // of the last one
	buffer  []byte // for it
	phases  [len(SerialPhases)]func(fd int) error
	summary SerialSummary
}

func newSerialClient(o SerialOptions) (*serialClient, error) {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	o.Request.HTTP10 = true
	request, err := o.Request.bytes(o.Server, false)
	if err != nil {
		return nil, err
	}
	// The head has some hundred bytes.
	c := &serialClient{SerialOptions: o, bytes: request, buffer: make([]byte, o.Body+1<<16)}
	c.phases = [...]func(int) error{c.connect, c.send, c.read, c.complete}
	c.summary.Whole = newTimes()
	for i := range c.summary.Phases {
		c.summary.Phases[i] = newTimes()
	}
	return c, nil
}

// run makes all requests on the calling thread.
func (c *serialClient) run(ctx context.Context) error {
	if err := Place(c.CPU, clientPriority(c.Urgent)); err != nil {
		return err
	}
	// Go's runtime interrupts long-running threads by SIGURG, which would end a wait with a timeout (signal(7)).
	var interrupts unix.Sigset_t
	interrupts.Val[0] = 1 << (unix.SIGURG - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &interrupts, nil); err != nil {
		return fmt.Errorf("signal mask: %w", err)
	}
	return c.Host.Do(func() error {
		for n := range c.Warmup + c.Requests {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := c.request(n >= c.Warmup); err != nil {
				return fmt.Errorf("request %d: %w", n+1, err)
			}
		}
		return nil
	})
}

// request makes one request, on a separate connection. The connection ends with a reset, so neither side remembers it.
func (c *serialClient) request(counts bool) error {
	moments := [len(SerialPhases) + 1]time.Time{time.Now()}
	fd, err := c.socket()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	c.answer = c.buffer[:0]
	for i, phase := range c.phases {
		if err := phase(fd); err != nil {
			return fmt.Errorf("%s: %w", SerialPhases[i], timedOut(err))
		}
		moments[i+1] = time.Now()
	}
	if counts {
		c.summary.add(moments[:])
	}
	return c.check()
}

// add counts a request. The parameter moments contains the start of its first phase and the end of each phase.
func (s *SerialSummary) add(moments []time.Time) {
	for i := range s.Phases {
		s.Phases[i].add(moments[i+1].Sub(moments[i]))
	}
	s.Whole.add(moments[len(moments)-1].Sub(moments[0]))
}

// socket opens a socket with the timeout.
func (c *serialClient) socket() (int, error) {
	family := unix.AF_INET
	if c.Server.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	wait := unix.NsecToTimeval(int64(c.Timeout))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait),
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
	)
	if err != nil {
		return -1, errors.Join(fmt.Errorf("socket: %w", err), unix.Close(fd))
	}
	return fd, nil
}

func (c *serialClient) connect(fd int) error {
	if err := c.bind(fd); err != nil {
		return err
	}
	return unix.Connect(fd, socketAddress(c.Server))
}

// bind binds a socket to the client's address. IPv6 requires an address of a device. An address that is local only because of a route (Host.Own) is
// not an address of a device.
func (c *serialClient) bind(fd int) error {
	if !c.From.IsValid() {
		return nil
	}
	if c.From.Is6() {
		if err := unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_FREEBIND, 1); err != nil {
			return err
		}
	}
	return unix.Bind(fd, socketAddress(netip.AddrPortFrom(c.From, 0)))
}

func socketAddress(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

func (c *serialClient) send(fd int) error {
	_, err := unix.Write(fd, c.bytes)
	return err
}

// read reads the available part of the answer, or waits for a part. At the end of the answer, it reads nothing.
func (c *serialClient) read(fd int) error {
	have := len(c.answer)
	if have == cap(c.answer) {
		return fmt.Errorf("more than %d bytes", have)
	}
	n, err := unix.Read(fd, c.buffer[have:])
	c.answer = c.buffer[:have+max(n, 0)]
	return err
}

// complete reads until the server has closed the connection.
func (c *serialClient) complete(fd int) error {
	for have := 0; have < len(c.answer); {
		have = len(c.answer)
		if err := c.read(fd); err != nil {
			return err
		}
	}
	return nil
}

// timedOut returns a timeout error for waits that were too long (socket(7), SO_RCVTIMEO).
func timedOut(err error) error {
	if err == unix.EAGAIN || err == unix.EINPROGRESS {
		return os.ErrDeadlineExceeded
	}
	return err
}

// check returns an error for an answer that is not the file.
func (c *serialClient) check() error {
	head, body, whole := bytes.Cut(c.answer, []byte("\r\n\r\n"))
	if !whole {
		return fmt.Errorf("answer: %w", io.ErrUnexpectedEOF)
	}
	status, _, _ := strings.Cut(string(head), "\r\n")
	if _, code, _ := strings.Cut(status, " "); !strings.HasPrefix(code, "200") {
		return fmt.Errorf("answer: %q", status)
	}
	if len(body) != c.Body {
		return fmt.Errorf("answer: %d bytes, want %d", len(body), c.Body)
	}
	return nil
}
