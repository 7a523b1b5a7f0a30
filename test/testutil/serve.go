// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"net"
	"testing"
)

// Serve accepts connections. For each connection it calls answer in a new goroutine, and then closes the connection. It closes the listener at the
// end of the test.
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
