package listen

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConns is how many connections a socket has at most.
const maxConns = 64

// answering is how long a connection with a request is left alone when there are too many: nearly all answers take less.
const answering = time.Second

// conns are the connections of a socket. When there are too many, one is closed for the new one: that which has been idle for the
// longest, or else that whose request is the oldest. So who opens connections and sends nothing, or reads nothing, keeps nobody
// out.
type conns struct {
	mu  sync.Mutex
	all map[net.Conn]condition
}

// condition is what a connection does, and since when.
type condition struct {
	idle  bool
	since time.Time
}

func newConns() *conns { return &conns{all: map[net.Conn]condition{}} }

// changed follows the states of connections; it is for http.Server.
func (c *conns) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.all[conn]
	switch {
	case state == http.StateNew:
		if len(c.all) >= maxConns && !c.closeOne() {
			go conn.Close()
			return
		}
		c.all[conn] = condition{true, time.Now()}
	case state == http.StateClosed, state == http.StateHijacked:
		delete(c.all, conn)
	case known:
		c.all[conn] = condition{state == http.StateIdle, time.Now()}
	}
}

// closeOne closes the connection that is needed least, and reports whether there is one.
func (c *conns) closeOne() bool {
	var least net.Conn
	for conn, is := range c.all {
		if (is.idle || time.Since(is.since) > answering) && (least == nil || is.before(c.all[least])) {
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
