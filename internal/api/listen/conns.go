package listen

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConns is how many connections a socket has at most.
const maxConns = 64

// conns are the connections of a socket. When there are too many, the one that has been idle for the longest is closed for a new
// one; when none is idle, the new one is closed. So who opens connections and sends nothing keeps nobody out.
type conns struct {
	mu   sync.Mutex
	idle map[net.Conn]time.Time // since when it has no request, or zero while it has one
}

func newConns() *conns { return &conns{idle: map[net.Conn]time.Time{}} }

// changed follows the states of connections; it is for http.Server.
func (c *conns) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.idle) >= maxConns && !c.closeIdle() {
			conn.Close()
			return
		}
		c.idle[conn] = time.Now()
	case http.StateActive:
		if _, ok := c.idle[conn]; ok {
			c.idle[conn] = time.Time{}
		}
	case http.StateIdle:
		if _, ok := c.idle[conn]; ok {
			c.idle[conn] = time.Now()
		}
	default:
		delete(c.idle, conn)
	}
}

// closeIdle closes the connection that has been idle for the longest, and reports whether there is one.
func (c *conns) closeIdle() bool {
	var oldest net.Conn
	for conn, since := range c.idle {
		if !since.IsZero() && (oldest == nil || since.Before(c.idle[oldest])) {
			oldest = conn
		}
	}
	if oldest == nil {
		return false
	}
	oldest.Close()
	delete(c.idle, oldest)
	return true
}
