package testutil

import (
	"net"
	"testing"
)

// Serve gives each connection that a listener accepts to answer, in a goroutine of its own, and closes it after that. It closes
// the listener at the end of the test.
func Serve(t testing.TB, l net.Listener, answer func(net.Conn)) {
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				answer(c)
			}()
		}
	}()
}
