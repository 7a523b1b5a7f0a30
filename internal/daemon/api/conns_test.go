package api

import (
	"fmt"
	"net"
	"net/http"
	"testing"
)

// far is a connection from an address of another host. Its end is noted.
type far struct {
	net.Conn
	from  string
	ended chan<- *far
}

func (c *far) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 9810} }
func (c *far) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 40000}
}
func (c *far) Close() error {
	c.ended <- c
	return nil
}

// crowd opens connections to a socket, and counts whose are closed.
type crowd struct {
	*conns
	opened, gone int
	ended        chan *far
	lost         map[string]int // connections that were closed, by address
}

func newCrowd() *crowd {
	return &crowd{conns: newConns(), ended: make(chan *far), lost: map[string]int{}}
}

// open opens a connection, which then has these states, and waits until there are no more than a socket has.
func (c *crowd) open(from string, states ...http.ConnState) {
	conn := &far{from: from, ended: c.ended}
	for _, state := range append([]http.ConnState{http.StateNew}, states...) {
		c.changed(conn, state)
	}
	for c.opened++; c.opened-c.gone > maxConns; c.gone++ {
		gone := <-c.ended
		c.lost[gone.from]++
		c.changed(gone, http.StateClosed)
	}
}

// stranger is one of many addresses, each in a /64 of its own.
func stranger(i int) string { return fmt.Sprintf("2001:db8:1:%x::1", i) }

// TestStrangers has many addresses open a connection each and send nothing. A user whose requests were answered has more connections than
// each of them: a stream of events, an idle one, and new ones without a request yet. None of his is closed.
func TestStrangers(t *testing.T) {
	t.Parallel()
	const operator = "2001:db8:ffff::1"
	c := newCrowd()
	c.open(operator, http.StateActive)
	c.open(operator, http.StateActive, http.StateIdle)
	for i := range 500 {
		c.open(stranger(i))
		if i%100 == 99 {
			c.open(operator) // it shakes hands while others come
		}
	}
	if n := c.lost[operator]; n > 0 || c.gone != 507-maxConns {
		t.Errorf("%d connections of the operator were closed for silent ones; %d in all", n, c.gone)
	}
}

// TestStrangerWithMost has one address send nothing on many connections, and others on one each: the one loses his own.
func TestStrangerWithMost(t *testing.T) {
	t.Parallel()
	c := newCrowd()
	for i := range 20 {
		c.open(stranger(i))
	}
	const flood = "2001:db8:ffff::1"
	for range 500 {
		c.open(flood)
	}
	for i := range 20 {
		c.open(stranger(100 + i))
	}
	if n := c.lost[flood]; n != c.gone || n != 540-maxConns {
		t.Errorf("%d connections were closed, of these %d of the one who has most", c.gone, n)
	}
}

// TestAskerWithMost has one address ask without an end on many connections, beside strangers with one each and a user with two: the one loses his own.
func TestAskerWithMost(t *testing.T) {
	t.Parallel()
	const flood, operator = "2001:db8:ffff::1", "2001:db8:fffe::1"
	c := newCrowd()
	for range maxConns - 2 {
		c.open(flood, http.StateActive)
	}
	c.open(operator, http.StateActive)
	c.open(operator, http.StateActive, http.StateIdle)
	for i := range 20 {
		c.open(stranger(i))
	}
	c.open(operator)
	if n := c.lost[flood]; n != 21 || c.gone != 21 {
		t.Errorf("%d connections were closed, of these %d of the one who has most", c.gone, n)
	}
}
