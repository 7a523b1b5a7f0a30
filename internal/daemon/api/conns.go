// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConns is the largest number of connections of a socket.
const maxConns = 64

// answering is how long a connection with a request is kept when the user of the connection opens too many. Nearly all answers take less time.
const answering = time.Second

// conns contains the connections of a socket, which several users share. When there are too many, a connection of the user with the most connections is
// closed for the new one. It is the connection that has been idle longest; if none is idle, the one with the oldest request. So a client that opens
// connections and neither sends nor reads cannot keep others out. A user that opens many connections never displaces those of users with fewer.
//
// Strangers are users without a connection on which a request has come. All strangers together count as one user, because a host can have any number of
// addresses, and a TLS client has shown no certificate before its first request. When strangers must lose a connection, it is one of the stranger with
// the most connections.
type conns struct {
	mu  sync.Mutex
	all map[net.Conn]condition
}

// condition is the user of a connection, its state, and since when it has that state.
type condition struct {
	user  string
	asked bool // a request has come
	idle  bool
	since time.Time
}

func newConns() *conns { return &conns{all: map[net.Conn]condition{}} }

// changed records the states of connections. It is the ConnState of http.Server.
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

// enter adds a connection of a user. It returns false if there is no place for the connection.
func (c *conns) enter(conn net.Conn, user string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= maxConns && !c.closeFor(user) {
		return false
	}
	c.all[conn] = condition{user, false, true, time.Now()}
	return true
}

// share is the number of a user's connections, and whether a request has come on any of them.
type share struct {
	has   int
	asked bool
}

// shares returns the share of each user, and the number of all strangers' connections together.
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

// closeFor closes a connection to make place for a new one of a user. It reports whether it closed one. It closes a connection of this user when no
// other user has more connections than this user would have with the new one.
func (c *conns) closeFor(user string) bool {
	of, strangers := c.shares()
	most := map[bool]int{} // connections of a single user: among users with a request, and among strangers
	for _, s := range of {
		most[s.asked] = max(most[s.asked], s.has)
	}
	asked := most[true] > strangers // a user with a request loses a connection
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
	go least.Close() // with TLS, Close sends an alert, which a slow client delays
	delete(c.all, least)
	return true
}

// before reports whether connection a must be closed before b.
func (a condition) before(b condition) bool {
	if a.idle != b.idle {
		return a.idle
	}
	return a.since.Before(b.since)
}
