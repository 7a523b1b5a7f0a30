// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/traffic"
	"github.com/floodwall/floodwall/internal/lab"
)

// tcpTraffic are clients with real sockets that run until ctx ends. The seed determines their requests and the times of the requests. The kernel
// determines when packets are sent.
type tcpTraffic struct {
	ctx     context.Context
	host    *lab.Host
	seed    uint64
	running sync.WaitGroup
	done    atomic.Uint64 // requests answered
	failed  atomic.Uint64 // requests that were not answered
	parts   uint64
}

// patienceTCP is the time for which a client waits for an answer.
const patienceTCP = 3 * time.Second

// random returns a source of random numbers for a part of the traffic.
func (t *tcpTraffic) random() *rand.Rand {
	t.parts++
	return rand.New(rand.NewPCG(t.seed, 1<<32+t.parts))
}

// dial connects from an address of the clients' host to a port of the server.
func (t *tcpTraffic) dial(from netip.Addr, port uint16) (c net.Conn, err error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: patienceTCP, Control: paced}
	err = t.host.Do(func() error {
		c, err = d.DialContext(t.ctx, "tcp", netip.AddrPortFrom(traffic.Host, port).String())
		return err
	})
	return c, err
}

// count counts a success or a failure. It ignores failures after the end of the traffic.
func (t *tcpTraffic) count(err error) {
	switch {
	case err == nil:
		t.done.Add(1)
	case t.ctx.Err() == nil:
		t.failed.Add(1)
	}
}

// atOnce is the maximum number of clients of a part that wait at the same time. Each client holds a thread while it connects, and a program may have
// 10,000 threads. If a machine is too busy for the rate, the rate falls.
const atOnce = 1000

// every makes calls at a rate. It calls do, and runs the function that do returns in the background.
func (t *tcpTraffic) every(rate float64, do func(r *rand.Rand) func() error) {
	r := t.random()
	t.running.Go(func() {
		var under sync.WaitGroup
		defer under.Wait()
		free := make(chan struct{}, atOnce)
		for next := time.Now(); ; {
			next = next.Add(time.Duration((0.5 + r.Float64()) / rate * float64(time.Second)))
			select {
			case <-t.ctx.Done():
				return
			case <-time.After(time.Until(next)):
			}
			free <- struct{}{}
			one := do(r)
			under.Go(func() {
				defer func() { <-free }()
				t.count(one())
			})
		}
	})
}

// clientIn returns one of 200 random clients of a network. Each client has a /24 of its own.
func clientIn(r *rand.Rand, p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	n := binary.BigEndian.Uint32(a[:]) + 1
	n += r.Uint32N(200) << 8
	binary.BigEndian.PutUint32(a[:], n)
	return netip.AddrFrom4(a)
}

// browse sends requests from clients of a network. Each request uses a connection of its own.
func (t *tcpTraffic) browse(from netip.Prefix, port uint16, rate float64) {
	t.every(rate, func(r *rand.Rand) func() error {
		client := clientIn(r, from)
		return func() error { return t.request(client, port) }
	})
}

// request sends one request.
func (t *tcpTraffic) request(from netip.Addr, port uint16) error {
	c, err := t.dial(from, port)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patienceTCP))
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\nHost: www.example\r\nUser-Agent: lab\r\n\r\n"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, c)
	return err
}

// poll opens connections at a rate, each for one request. On the SSH port, the request is a keystroke.
func (t *tcpTraffic) poll(from netip.Addr, port uint16, rate float64) {
	t.every(rate, func(*rand.Rand) func() error {
		return func() error {
			if port != traffic.SSH {
				return t.request(from, port)
			}
			c, err := t.dial(from, port)
			if err == nil {
				err = t.typed(c)
				c.Close()
			}
			return err
		}
	})
}

// typed sends bytes as a person who types does, and reads their echo.
func (t *tcpTraffic) typed(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(patienceTCP))
	var b [48]byte
	_, err := c.Write(b[:])
	if err == nil {
		_, err = io.ReadFull(c, b[:])
	}
	return err
}

// stay keeps a connection open and calls do on it repeatedly. If do fails, stay connects again.
func (t *tcpTraffic) stay(from netip.Addr, port uint16, pause time.Duration, do func(net.Conn) error) {
	t.running.Go(func() {
		for t.ctx.Err() == nil {
			c, err := t.dial(from, port)
			if err != nil {
				t.count(err)
				wait(t.ctx, pause)
				continue
			}
			end := context.AfterFunc(t.ctx, func() { c.Close() })
			for err == nil && t.ctx.Err() == nil {
				err = do(c)
				t.count(err)
				wait(t.ctx, pause)
			}
			end()
			c.Close()
		}
	})
}

// wait waits for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// sessions simulates n people who type in SSH sessions.
func (t *tcpTraffic) sessions(from netip.Prefix, n int) {
	r := t.random()
	for range n {
		t.stay(clientIn(r, from), traffic.SSH, 200*time.Millisecond, t.typed)
	}
}

// fetch opens connections from the addresses of a network, which has at most 256. Each connection requests a page repeatedly, with a pause after each
// page.
func (t *tcpTraffic) fetch(from netip.Prefix, port uint16, connections int, pause time.Duration) {
	for i := range connections {
		client := from.Addr().As4()
		client[3] += byte(i % (1 << (32 - from.Bits())))
		var read *bufio.Reader
		var of net.Conn
		t.stay(netip.AddrFrom4(client), port, pause, func(c net.Conn) error {
			if c != of {
				of, read = c, bufio.NewReader(c)
			}
			_ = c.SetDeadline(time.Now().Add(patienceTCP))
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: www.example\r\n\r\n"); err != nil {
				return err
			}
			response, err := http.ReadResponse(read, nil)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			_, err = io.Copy(io.Discard, response.Body)
			return err
		})
	}
}

// upload sends an endless file.
func (t *tcpTraffic) upload(from netip.Addr, port uint16) {
	r := t.random()
	part := make([]byte, 64<<10)
	t.stay(from, port, 0, func(c net.Conn) error {
		traffic.Random(r, part) // like compressed data
		_ = c.SetDeadline(time.Now().Add(patienceTCP))
		_, err := c.Write(part)
		return err
	})
}

// download receives an endless file.
func (t *tcpTraffic) download(from netip.Addr, port uint16) {
	asked := false
	part := make([]byte, 64<<10)
	t.stay(from, port, 0, func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(patienceTCP))
		if !asked {
			asked = true
			if _, err := io.WriteString(c, "GET /large HTTP/1.0\r\n\r\n"); err != nil {
				return err
			}
		}
		_, err := c.Read(part)
		asked = err == nil
		return err
	})
}

// The TCP part of the usual mix: requests per second to each of the two ports, and the number of people who type.
const usualRequests, usualSessions = 20, 2

// usual sends the TCP part of the usual mix. A multiple of the mix has more connections, but no more traffic in each connection.
func (t *tcpTraffic) usual(times float64) {
	for _, port := range []uint16{traffic.HTTP, traffic.HTTPS} {
		t.browse(traffic.UsualClients, port, usualRequests*times)
	}
	t.sessions(traffic.UsualClients, usualSessions)
}
