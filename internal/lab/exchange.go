// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"
)

// The phases of a request.
const (
	phaseWait      = iota // with a Rate: from the time when the request was due until it started
	phaseConnect          // from the start until the connection is established
	phaseTLS              // the TLS handshake
	phaseSend             // until the kernel has the whole request
	phaseFirstByte        // from then until the first byte of the answer
	phaseComplete         // from then until the answer is complete
	phases
)

// phaseNames are the names of the phases in results.
var phaseNames = [phases]string{"wait", "connect", "tls", "send", "first byte", "complete"}

// outcome is the result of a request.
type outcome struct {
	phases [phases]time.Duration // negative: the phase did not take place
	end    time.Time             // when the answer was complete, or the request failed
	bytes  int64                 // number of bytes of the answer's body
	err    error
}

// connection is a connection of the clients to the server.
type connection struct {
	net.Conn               // the connection, with or without TLS
	tcp      net.Conn      // the connection below TLS
	answers  *bufio.Reader // reads answers
	forget   func() bool   // stops the function that ends the connection with the context
	broken   error         // the error that ended reading
}

// Read reads from the connection, and records the error that ends it. The parser of answers would only report that a truncated answer is malformed.
func (conn *connection) Read(b []byte) (int, error) {
	n, err := conn.Conn.Read(b)
	if err != nil {
		conn.broken = err
	}
	return n, err
}

// request makes one request and records its outcome. It returns the error if the request failed, else nil.
func (c *client) request(ctx context.Context, due time.Time) error {
	waited := time.Since(due)
	o := c.exchange(ctx, due.Add(c.Timeout))
	if o.err != nil && ended(ctx) {
		c.record.interrupt()
		return o.err
	}
	o.phases[phaseWait] = -1
	if c.Rate > 0 {
		o.phases[phaseWait] = waited
	}
	c.record.add(o.end.Sub(due), o)
	return o.err
}

// ended reports whether ctx has ended or is about to end. A function that knows the deadline of ctx may return a moment before ctx ends.
func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// exchange sends a request and reads the answer. If a reused connection is closed, the server has closed it while the request was on its way. This is
// no failure. exchange then uses another connection (RFC 9112, 9.3.1).
func (c *client) exchange(ctx context.Context, deadline time.Time) outcome {
	for conn := c.takeIdle(); conn != nil; conn = c.takeIdle() {
		o := outcome{phases: [phases]time.Duration{phaseConnect: -1, phaseTLS: -1}}
		var early *earlyError
		if c.ask(conn, deadline, &o); !errors.As(o.err, &early) {
			return o
		}
	}
	o := outcome{phases: [phases]time.Duration{phaseTLS: -1}}
	conn, err := c.connect(ctx, deadline, &o)
	if err != nil {
		o.err, o.end = err, time.Now()
		return o
	}
	c.ask(conn, deadline, &o)
	return o
}

// connect opens a connection.
func (c *client) connect(ctx context.Context, deadline time.Time, o *outcome) (*connection, error) {
	start := time.Now()
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	tcp, err := c.Host.Dial(limited, "tcp", c.Server)
	if err != nil {
		return nil, err
	}
	o.phases[phaseConnect] = time.Since(start)
	conn := &connection{Conn: tcp, tcp: tcp, answers: bufio.NewReaderSize(nil, 4096)}
	conn.forget = context.AfterFunc(ctx, func() { tcp.Close() })
	if c.TLS != nil {
		if err := conn.handshake(c.TLS, deadline, o); err != nil {
			conn.end()
			return nil, err
		}
	}
	conn.answers.Reset(conn)
	return conn, nil
}

func (conn *connection) handshake(config *tls.Config, deadline time.Time, o *outcome) error {
	start := time.Now()
	if err := conn.tcp.SetDeadline(deadline); err != nil {
		return err
	}
	secure := tls.Client(conn.tcp, config)
	if err := secure.Handshake(); err != nil {
		return err
	}
	o.phases[phaseTLS], conn.Conn = time.Since(start), secure
	return nil
}

// end closes a connection at once.
func (conn *connection) end() {
	conn.forget()
	_ = conn.tcp.Close() // all useful data has been read
}

// earlyError is an error that ended a connection before the first byte of an answer.
type earlyError struct{ error }

func (e *earlyError) Unwrap() error { return e.error }

// early wraps an error in an earlyError if it shows that the server has closed the connection.
func early(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return &earlyError{err}
	}
	return err
}

// ask sends the request on a connection and reads the answer. Then it keeps the connection for the next request, or ends the connection.
func (c *client) ask(conn *connection, deadline time.Time, o *outcome) {
	again := false
	if o.err = conn.tcp.SetDeadline(deadline); o.err == nil {
		again, o.err = conn.exchange(c.bytes, c.Request.Method, o)
	}
	o.end = time.Now()
	switch {
	case o.err != nil:
		conn.end()
	case again && c.KeepAlive:
		c.putIdle(conn)
	default:
		conn.leave()
	}
}

// exchange sends a request and reads the answer. The result again reports whether the connection can be used for another request.
func (conn *connection) exchange(request []byte, method string, o *outcome) (again bool, err error) {
	start := time.Now()
	if _, err := conn.Write(request); err != nil {
		return false, early(err)
	}
	sent := time.Now()
	o.phases[phaseSend] = sent.Sub(start)
	if _, err := conn.answers.Peek(1); err != nil {
		return false, early(err)
	}
	first := time.Now()
	o.phases[phaseFirstByte] = first.Sub(sent)
	answer, err := readAnswer(conn.answers, method)
	switch {
	case err != nil && conn.broken != nil:
		return false, conn.broken
	case err != nil:
		return false, &answerError{err}
	}
	if o.bytes, err = io.Copy(io.Discard, answer.Body); err != nil {
		return false, err
	}
	o.phases[phaseComplete] = time.Since(first)
	if answer.StatusCode >= http.StatusBadRequest {
		return false, statusError(answer.StatusCode)
	}
	return !answer.Close && conn.answers.Buffered() == 0, nil
}

// answerError is the error for data that is not a valid answer.
type answerError struct{ error }

// readAnswer reads the head of an answer. It skips interim responses (RFC 9110, 15.2).
func readAnswer(from *bufio.Reader, method string) (*http.Response, error) {
	for {
		answer, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			return nil, err
		}
		if answer.StatusCode/100 != 1 || answer.StatusCode == http.StatusSwitchingProtocols {
			return answer, nil
		}
	}
}

// leaveTime is the time for which a client waits after the answer until the server closes the connection.
const leaveTime = 100 * time.Millisecond

// leave waits until the server has closed the connection. The server should close first, because the end that closes first keeps its port for a
// minute (TIME_WAIT), and the clients have only some ten thousand ports.
func (conn *connection) leave() {
	if conn.tcp.SetReadDeadline(time.Now().Add(leaveTime)) == nil {
		_, _ = io.Copy(io.Discard, conn.tcp)
	}
	conn.end()
}

// takeIdle removes and returns the connection that was kept last, or nil if there is none.
func (c *client) takeIdle() *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.idle)
	if n == 0 {
		return nil
	}
	conn := c.idle[n-1]
	c.idle = c.idle[:n-1]
	return conn
}

func (c *client) putIdle(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, conn)
}

func (c *client) closeIdle() {
	for conn := c.takeIdle(); conn != nil; conn = c.takeIdle() {
		conn.end()
	}
}
