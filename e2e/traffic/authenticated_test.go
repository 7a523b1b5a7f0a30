// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/test/testutil"
)

// keyed are the TCP options that authenticate segments: MD5 (RFC 2385) and TCP-AO (RFC 5925). Their digests are zeros, which match no key.
var keyed = []layers.TCPOption{option(19, make([]byte, 16)...), option(29, make([]byte, 14)...)}

// TestAuthenticatedFlood sends SYNs with an authentication option from forged sources. The policy lets a number of such SYNs through to the kernel.
// The server must have no more half-open connections than this number.
func TestAuthenticatedFlood(t *testing.T) {
	const sent, let = 300, 5
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testutil.RequireTool(t, "ss")
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.target = plan.TargetXDP
				s.echo()
				p := s.newPeer(servers[0], 20_000)
				flood := func() {
					for i := range sent {
						p.from = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(100 + i%100)}), uint16(20_000+i))
						p.send(segment{flags: "S", options: append([]layers.TCPOption{option(layers.TCPOptionKindMSS, 5, 180)}, keyed[i%2])})
					}
				}
				s.protect(always, "")
				flood()
				s.counts("answered", sent)
				if n := s.halfOpen(); n > 0 {
					t.Errorf("%d of %d SYNs with TCP-AO or MD5 are half-open connections", n, sent)
				}
				s.protect(always+", authenticated: {rate: 1/h, burst: 5}", "")
				_, before := s.status()
				flood()
				s.counts("answered", before["answered"]+sent-let)
				if _, after := s.status(); after["authenticated"] != let || s.halfOpen() > let {
					t.Errorf("%d half-open connections, want at most %d; counted %v", s.halfOpen(), let, after)
				}
			})
		})
	}
}

// counts waits until the counter of an outcome is at least want.
func (s *synScene) counts(outcome string, want uint64) {
	s.Helper()
	var counts map[string]uint64
	for end := time.Now().Add(synPatience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, counts = s.status(); counts[outcome] >= want {
			return
		}
	}
	s.Errorf("counted %v, want %s %d", counts, outcome, want)
}

// halfOpen returns the number of half-open connections of the server.
func (s *synScene) halfOpen() int {
	s.Helper()
	return strings.Count(s.output(s.server, "ss -Htan state syn-recv"), "\n")
}

// TestAuthenticated makes a connection that both ends authenticate with MD5, as BGP daemons do. The policy of the protection passes the SYNs of such
// connections to the kernel.
func TestAuthenticated(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.target = plan.TargetXDP
				server, client := servers[0], netip.MustParseAddr("10.0.0.1")
				var l net.Listener
				err := s.server.Do(func() (err error) {
					c := net.ListenConfig{Control: withKey(client)}
					c.SetMultipathTCP(false)
					l, err = c.Listen(s.ctx, "tcp4", server.String())
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				go new(echo).serve(l)
				s.protect(always+", authenticated: 10/s", "")
				for range 3 {
					var c net.Conn
					err := s.clients[0].Do(func() (err error) {
						d := net.Dialer{Timeout: synPatience, Control: withKey(server.Addr())}
						c, err = d.DialContext(s.ctx, "tcp4", server.String())
						return err
					})
					if err == nil {
						err = errors.Join(converse(c, "hello"), c.Close())
					}
					if err != nil && !errors.Is(err, io.EOF) {
						t.Errorf("a connection that is authenticated: %v", err)
					}
				}
				if _, counts := s.status(); counts["authenticated"] == 0 || counts["invalid"] > 0 {
					t.Errorf("counted %v", counts)
				}
			})
		})
	}
}

// withKey returns a function that sets the MD5 key of a socket for connections with a peer.
func withKey(peer netip.Addr) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		key := unix.TCPMD5Sig{Keylen: 6}
		copy(key.Key[:], "secret")
		key.Addr.Family = unix.AF_INET
		copy(key.Addr.Data[2:], peer.AsSlice()) // after the port of struct sockaddr_in
		failed := c.Control(func(fd uintptr) { err = unix.SetsockoptTCPMD5Sig(int(fd), unix.IPPROTO_TCP, unix.TCP_MD5SIG, &key) })
		return errors.Join(failed, err)
	}
}
