package api

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConns is how many connections a socket has at most.
const maxConns = 64

// answering is how long a connection with a request is left alone when its own user opens too many: nearly all answers take less.
const answering = time.Second

// conns are the connections of a socket, which its users share. When there are too many, one of the user who has most of them is closed for
// the new one: that which has been idle for the longest, or else that whose request is the oldest. So who opens connections and sends
// nothing, or reads nothing, keeps nobody out, and however fast somebody opens them, connections of a user with fewer stay.
type conns struct {
	mu  sync.Mutex
	all map[net.Conn]condition
	has map[string]int // how many each user has
}

// condition is whose a connection is, what it does, and since when.
type condition struct {
	user  string
	idle  bool
	since time.Time
}

func newConns() *conns { return &conns{all: map[net.Conn]condition{}, has: map[string]int{}} }

// changed follows the states of connections; it is for http.Server.
func (c *conns) changed(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if !c.enter(conn, userOf(conn)) {
			go conn.Close()
		}
	case http.StateClosed, http.StateHijacked:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leave(conn)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		if is, known := c.all[conn]; known {
			c.all[conn] = condition{is.user, state == http.StateIdle, time.Now()}
		}
	}
}

// enter takes a place for a connection, and reports whether there is one.
func (c *conns) enter(conn net.Conn, user string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= maxConns && !c.closeFor(user) {
		return false
	}
	c.all[conn] = condition{user, true, time.Now()}
	c.has[user]++
	return true
}

func (c *conns) leave(conn net.Conn) {
	is, known := c.all[conn]
	if !known {
		return
	}
	delete(c.all, conn)
	if c.has[is.user]--; c.has[is.user] == 0 {
		delete(c.has, is.user)
	}
}

// closeFor closes the connection that is needed least for a new one of a user, and reports whether there is one. It is the user's own when
// no other one would have more than he then has.
func (c *conns) closeFor(user string) bool {
	most := 0
	for _, n := range c.has {
		most = max(most, n)
	}
	own := c.has[user] > 0 && c.has[user]+1 >= most
	var least net.Conn
	for conn, is := range c.all {
		mayGo := c.has[is.user] == most
		if own {
			mayGo = is.user == user && (is.idle || time.Since(is.since) > answering)
		}
		if mayGo && (least == nil || is.before(c.all[least])) {
			least = conn
		}
	}
	if least == nil {
		return false
	}
	go least.Close() // with TLS it says goodbye, which a slow client holds up
	c.leave(least)
	return true
}

// before reports whether a connection is to be closed before another one.
func (a condition) before(b condition) bool {
	if a.idle != b.idle {
		return a.idle
	}
	return a.since.Before(b.since)
}
