// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestEndsAreNoted makes clients end connections in all possible ways. Afterwards the table of flows must list none of these connections as open.
// Otherwise the table would fill up.
func TestEndsAreNoted(t *testing.T) {
	ends := map[string]func(*net.TCPConn) error{
		"FIN":            (*net.TCPConn).Close,
		"RST":            reset,
		"data, then FIN": func(c *net.TCPConn) error { return lastWords(c, (*net.TCPConn).Close) },
		"the server": func(c *net.TCPConn) error {
			defer c.Close()
			return lastWords(c, func(c *net.TCPConn) error { _, err := io.Copy(io.Discard, c); return err })
		},
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.echo()
				s.protect(always, "")
				for name, end := range ends {
					for range 5 {
						for _, to := range servers {
							if err := s.endOne(to, end); err != nil {
								t.Errorf("%s: %v", name, err)
							}
						}
					}
					if !testutil.Eventually(synPatience, func() bool { return s.openFlows() == 0 }) {
						t.Errorf("%s: %d flows are held to be open", name, s.openFlows())
					}
				}
			})
		})
	}
}

func (s *synScene) endOne(to netip.AddrPort, end func(*net.TCPConn) error) error {
	c, err := s.dial(s.clients[0], to)
	if err != nil {
		return err
	}
	for _, text := range []string{"one", "two"} {
		if err := converse(c, text); err != nil {
			return err
		}
	}
	return end(c.(*net.TCPConn))
}

func reset(c *net.TCPConn) error {
	if err := c.SetLinger(0); err != nil {
		return err
	}
	return c.Close()
}

// lastWords sends the text after which the server ends a connection. Then it calls the function then.
func lastWords(c *net.TCPConn, then func(*net.TCPConn) error) error {
	if _, err := io.WriteString(c, bye); err != nil {
		return err
	}
	return then(c)
}

// openFlows returns the number of connections that the table of flows lists as open.
func (s *synScene) openFlows() (n int) {
	s.Helper()
	pins, err := filepath.Glob(s.Dir + "/generation-*/" + image.Flows)
	if err != nil || len(pins) != 1 {
		s.Fatalf("table of connections: %v, %v", pins, err)
	}
	m, err := ebpf.LoadPinnedMap(pins[0], nil)
	if err != nil {
		s.Fatal(err)
	}
	defer m.Close()
	var bucket [image.FlowBucketSize / 8]uint64
	for i := range m.MaxEntries() {
		if err := m.Lookup(i, &bucket); err != nil {
			s.Fatal(err)
		}
		for _, word := range bucket {
			switch datapath.FlowState(word >> 24 & 7) {
			case datapath.Established, datapath.Doubted, datapath.Lasting:
				n++
			}
		}
	}
	return n
}
