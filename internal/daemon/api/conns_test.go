// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net"
	"net/http"
	"testing"
)

// far is a connection from an address of another host. It records whether it was closed.
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

// crowd opens connections to a socket, and counts the closed ones.
type crowd struct {
	*conns
	opened, gone int
	ended        chan *far
	lost         map[string]int // connections that were closed, by address
}

func newCrowd() *crowd {
	return &crowd{conns: newConns(), ended: make(chan *far), lost: map[string]int{}}
}

// open opens a connection and puts it into these states. Then it waits until there are no more connections than a socket allows.
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

// stranger returns the address number i of a series of addresses. Each address is in another /64.
func stranger(i int) string { return fmt.Sprintf("2001:db8:1:%x::1", i) }

// TestStrangers opens one silent connection from each of many addresses. A user whose requests were answered has several connections: a stream of
// events, an idle connection, and new ones without a request yet. None of that user's connections may be closed, although each stranger has only one.
func TestStrangers(t *testing.T) {
	t.Parallel()
	const operator = "2001:db8:ffff::1"
	c := newCrowd()
	c.open(operator, http.StateActive)
	c.open(operator, http.StateActive, http.StateIdle)
	for i := range 500 {
		c.open(stranger(i))
		if i%100 == 99 {
			c.open(operator) // the TLS handshake of this connection runs while others connect
		}
	}
	if n := c.lost[operator]; n > 0 || c.gone != 507-maxConns {
		t.Errorf("%d connections of the operator were closed for silent ones; %d in all", n, c.gone)
	}
}

// TestStrangerWithMost opens many silent connections from one address, and one connection from each of several other addresses. Only the first
// address may lose connections.
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

// TestAskerWithMost sends requests without end from one address on many connections. There are also strangers with one connection each, and a user
// with two. Only the first address may lose connections.
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
