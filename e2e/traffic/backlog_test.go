// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestServerSendsCookies puts a server behind each kind of SYNPROXY. The server's kernel answers SYNPROXY with SYN cookies, as it does while its
// backlog is full. Such a server keeps no state of a SYN, so it knows only the content of the first segment after its SYN-ACK. If this segment does
// not echo the server's timestamp, two things fail. For half of the clients, the connection's timestamps go backwards, and these clients accept no
// segment from the server. The server also misreads the connection's windows. With iptables, the server learns no TCP option.
func TestServerSendsCookies(t *testing.T) {
	for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables} {
		t.Run(string(target), func(t *testing.T) {
			t.Parallel()
			testutil.RequireTool(t, "ss")
			synInScene(t, "router", 1, 1500, func(s *synScene) {
				s.target = target
				s.sysctl(s.server, "ipv4/tcp_syncookies", "2") // always, as when the backlog is full
				for _, at := range servers {
					go serveLong(s.listen(at.String()))
				}
				s.protect(always, "")
				for i := range 2 * visitors {
					before := s.netstat(s.server, "SyncookiesRecv")
					err := s.converseLong(servers[i%2])
					for tries := 0; err != nil && tries < 3 && s.netstat(s.server, "SyncookiesRecv") == before; tries++ {
						// The client's ACK was lost. The server has kept no state (RFC 4987, 3.6), so the client must connect again.
						err = s.converseLong(servers[i%2])
					}
					if err != nil {
						t.Fatalf("connection %d, %s: %v", i, family(servers[i%2]), err)
					}
				}
				if n := s.netstat(s.server, "SyncookiesRecv"); n < 2*visitors {
					t.Errorf("%d connections began with a cookie of the server: the test shows nothing", n)
				}
				// A kernel before 6.15 does not check the echoed timestamp, and does not have this counter.
				if n := s.netstat(s.server, "TSEcrRejected"); n != 0 {
					t.Errorf("the server refused %d segments for the timestamp that they echo", n)
				}
			})
		})
	}
}

// visitors is the number of connections that clients make to each address of a server.
const visitors = 6

// long is the number of bytes that each end sends. It exceeds the initial congestion window.
const long = 40_000

// serveLong first sends a text to each client. It then reads the client's text, and confirms it.
func serveLong(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			if sendStream(c, long, 1) == nil && checkStream(c, long, 2) == nil {
				io.WriteString(c, bye)
			}
		}()
	}
}

// allOptions matches the output of ss for a connection with timestamps, SACK and the window scales of both ends.
var allOptions = regexp.MustCompile(`ts sack .*wscale:[1-9]\d*,[1-9]`)

// converseLong is the client's side of serveLong. It fails if client and server wait for each other. It also fails if the server has not negotiated
// an option that the client considers negotiated.
func (s *synScene) converseLong(to netip.AddrPort) error {
	s.Helper()
	c, err := s.dial(s.clients[0], to)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(synPatience)); err != nil {
		return err
	}
	if err := checkStream(c, long, 1); err != nil {
		return err
	}
	port := netip.MustParseAddrPort(c.LocalAddr().String()).Port()
	found := s.output(s.server, fmt.Sprintf("ss -Htino ( dport = %d )", port))
	if s.target != plan.TargetIptables && !allOptions.MatchString(found) {
		return fmt.Errorf("the server does not know the client's options: %s", found)
	}
	if err := sendStream(c, long, 2); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, len(bye)))
	return err
}
