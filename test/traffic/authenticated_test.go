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

// Options by which a key authenticates segments: of MD5 (RFC 2385) and of TCP-AO (RFC 5925), here with bytes of no key.
var keyed = []layers.TCPOption{option(19, make([]byte, 16)...), option(29, make([]byte, 14)...)}

// TestAuthenticatedFlood has SYNs come from forged sources that say they are authenticated. They make the server no half-open
// connection, but for as many as the policy leaves to the kernel.
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

// counts waits until an outcome was counted so often.
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

// halfOpen is how many connections the server has half open.
func (s *synScene) halfOpen() int {
	s.Helper()
	return strings.Count(s.output(s.server, "ss -Htan state syn-recv"), "\n")
}

// TestAuthenticated has both ends of a connection authenticate it with MD5, as BGP daemons do, through a protection that the
// policy tells to leave such connections to the kernel.
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

// withKey gives a socket the key of connections with a peer.
func withKey(peer netip.Addr) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		key := unix.TCPMD5Sig{Keylen: 6}
		copy(key.Key[:], "secret")
		key.Addr.Family = unix.AF_INET
		copy(key.Addr.Data[2:], peer.AsSlice()) // behind the port of struct sockaddr_in
		failed := c.Control(func(fd uintptr) { err = unix.SetsockoptTCPMD5Sig(int(fd), unix.IPPROTO_TCP, unix.TCP_MD5SIG, &key) })
		return errors.Join(failed, err)
	}
}
