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

// TestServerSendsCookies has a server behind every SYNPROXY there is, whose kernel answers it with cookies of its own, as it
// does while its backlog is full. Such a server keeps nothing of a SYN: all that it knows of the connection is what the
// first segment behind its SYN-ACK says. If SYNPROXY says another echo there than the server's timestamp, the connection's
// timestamps go back for half of the clients, which take nothing from the server then, and its windows are misread. With
// iptables the server learns of no option.
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
						// The client's ACK was lost, of which the server has kept nothing (RFC 4987, 3.6): a client comes again.
						err = s.converseLong(servers[i%2])
					}
					if err != nil {
						t.Fatalf("connection %d, %s: %v", i, family(servers[i%2]), err)
					}
				}
				if n := s.netstat(s.server, "SyncookiesRecv"); n < 2*visitors {
					t.Errorf("%d connections began with a cookie of the server: the test shows nothing", n)
				}
				// A kernel before 6.15 does not look, and has no such counter.
				if n := s.netstat(s.server, "TSEcrRejected"); n != 0 {
					t.Errorf("the server refused %d segments for the timestamp that they echo", n)
				}
			})
		})
	}
}

// visitors are how many clients come to each address of a server.
const visitors = 6

// long is how many bytes each end sends: more than a first flight.
const long = 40_000

// serveLong sends a text to each client before it says anything, reads one of the client's, and says that it is read.
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

// allOptions is what ss says of a connection with timestamps, SACK and the window scales of both ends.
var allOptions = regexp.MustCompile(`ts sack .*wscale:[1-9]\d*,[1-9]`)

// converseLong is what a client of serveLong does. It fails when the two wait for each other, or when the server lacks an option that the client was told of.
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
