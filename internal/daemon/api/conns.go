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
//
// Strangers, users who have no connection on which a request has come, count as one user: a host has as many addresses as it wants, and before a
// request with TLS it has not shown a certificate. Among them, the one who has most loses one.
type conns struct {
	mu  sync.Mutex
	all map[net.Conn]condition
}

// condition is whose a connection is, what it does, and since when.
type condition struct {
	user  string
	asked bool // a request has come
	idle  bool
	since time.Time
}

func newConns() *conns { return &conns{all: map[net.Conn]condition{}} }

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
		delete(c.all, conn)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		if is, known := c.all[conn]; known {
			c.all[conn] = condition{is.user, true, state == http.StateIdle, time.Now()}
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
	c.all[conn] = condition{user, false, true, time.Now()}
	return true
}

// share is how many connections a user has, and whether a request has come on one of them.
type share struct {
	has   int
	asked bool
}

// shares are those of all users, and how many connections strangers have together.
func (c *conns) shares() (of map[string]share, strangers int) {
	of = map[string]share{}
	for _, is := range c.all {
		s := of[is.user]
		of[is.user] = share{s.has + 1, s.asked || is.asked}
	}
	for _, s := range of {
		if !s.asked {
			strangers += s.has
		}
	}
	return of, strangers
}

// closeFor closes the connection that is needed least for a new one of a user, and reports whether there is one. It is the user's own when
// no other one would have more than he then has.
func (c *conns) closeFor(user string) bool {
	of, strangers := c.shares()
	most := map[bool]int{} // that a user has, among those who have asked, and among strangers
	for _, s := range of {
		most[s.asked] = max(most[s.asked], s.has)
	}
	asked := most[true] > strangers // one who has asked loses a connection
	other := most[asked]
	if of[user].asked {
		other = max(most[true], strangers)
	}
	own := of[user].has > 0 && of[user].has+1 >= other
	var least net.Conn
	for conn, is := range c.all {
		mayGo := of[is.user] == share{most[asked], asked}
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
	delete(c.all, least)
	return true
}

// before reports whether a connection is to be closed before another one.
func (a condition) before(b condition) bool {
	if a.idle != b.idle {
		return a.idle
	}
	return a.since.Before(b.since)
}
