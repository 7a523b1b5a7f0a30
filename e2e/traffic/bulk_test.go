// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// bulk returns the number of bytes that are sent in each direction.
func bulk() int64 { return int64(testutil.Scaled(16<<20, 1<<30)) }

// TestBulk sends many bytes in both directions at the same time over protected connections.
func TestBulk(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.protect(always, "") // before any server listens: in router mode it connects to the servers that it protects
				for _, to := range servers {
					l := s.listen(to.String())
					if err := s.exchange(l, to); err != nil {
						t.Errorf("%s: %v", family(to), err)
					}
				}
			})
		})
	}
}

// exchange makes a connection on which both ends send at the same time.
func (s *synScene) exchange(l net.Listener, to netip.AddrPort) error {
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			err = bothWays(c, 2, 1)
		}
		served <- err
	}()
	c, err := s.dial(s.clients[0], to)
	if err != nil {
		return err
	}
	defer c.Close()
	return errors.Join(bothWays(c, 1, 2), <-served)
}

// bothWays sends the byte sequence of the seed send. At the same time it reads, and expects the byte sequence of the seed want.
func bothWays(c net.Conn, send, want byte) error {
	const slowest = 2 << 20 // bytes a second
	c.SetDeadline(time.Now().Add(synPatience + time.Duration(bulk()/slowest)*time.Second))
	sent := make(chan error, 1)
	go func() { sent <- sendStream(c, bulk(), send) }()
	return errors.Join(checkStream(c, bulk(), want), <-sent)
}
