// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/test/testutil"
)

// churn are clients with few addresses and ports, like those of a reverse proxy or a NAT. Each request uses a new connection, which the server
// closes. The client uses the port again while the server is still in TIME-WAIT.
type churn struct {
	*synScene
	pause    time.Duration // time that a client waits after an answer
	stop     atomic.Bool
	group    sync.WaitGroup
	answered atomic.Int64
	mu       sync.Mutex
	wrong    map[string]int // the number of clients for each error
}

// churnPorts is the range of ports that clients use. It is small enough that they use each port again within a second.
const churnPorts = "30000 30399"

// churnRate is the maximum rate of connections per second of all clients together. The rest of the CPU time is for the policies that are applied at
// the same time.
const churnRate = 1000

// newChurn starts clients that each send one request after the other. The caller must call end.
func (s *synScene) newChurn(clients int) *churn {
	s.Helper()
	c := &churn{synScene: s, pause: time.Duration(clients) * time.Second / churnRate, wrong: map[string]int{}}
	s.sysctl(s.clients[0], "ipv4/ip_local_port_range", churnPorts)
	for i := range clients {
		c.group.Go(func() {
			if err := s.clients[0].Do(func() error { return c.ask(servers[i%2]) }); err != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.wrong[err.Error()]++
			}
		})
	}
	return c
}

func (c *churn) ask(to netip.AddrPort) error {
	buffer := make([]byte, 1<<16)
	for !c.stop.Load() {
		if err := askOnce(to, buffer); err != nil {
			return err
		}
		c.answered.Add(1)
		time.Sleep(c.pause)
	}
	return nil
}

// while waits until the given number of further requests has been answered.
func (c *churn) while(more int64) {
	c.Helper()
	before := c.answered.Load()
	for end := time.Now().Add(synPatience); c.answered.Load() < before+more; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.Errorf("%d requests are answered in %v, want %d", c.answered.Load()-before, synPatience, more)
			return
		}
	}
}

// end stops the clients. None of them may have failed.
func (c *churn) end() {
	c.Helper()
	c.stop.Store(true)
	c.group.Wait()
	for what, times := range c.wrong {
		c.Errorf("%d clients: %s", times, what)
	}
}

// askOnce requests a small page over a connection of its own. It uses system calls directly for speed.
func askOnce(to netip.AddrPort, buffer []byte) error {
	family, at := socketAddress(to)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(synPatience.Nanoseconds())
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &wait); err != nil {
			return err
		}
	}
	if err := connect(fd, at); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if _, err := unix.Write(fd, []byte("GET /"+smallName+" HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n")); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	for total := 0; ; {
		n, err := unix.Read(fd, buffer)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("read: %w", err)
		case n == 0 && total == 0:
			return errors.New("read: the connection ends without an answer")
		case n == 0:
			return nil
		}
		total += n
	}
}

func socketAddress(a netip.AddrPort) (family int, at unix.Sockaddr) {
	if a.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// connect connects a socket. It continues after a signal, because Go's runtime interrupts long system calls by signals.
func connect(fd int, to unix.Sockaddr) error {
	err := unix.Connect(fd, to)
	for errors.Is(err, unix.EINTR) || errors.Is(err, unix.EALREADY) {
		if _, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(synPatience.Milliseconds())); err == nil {
			var code int
			if code, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && code != 0 {
				return unix.Errno(code)
			}
		}
	}
	return err
}

// churned returns the numbers of clients that run at the same time, one for each run.
func churned() []int {
	if testutil.Long() {
		return []int{1, 20, 200}
	}
	return []int{100}
}

// TestChurn makes clients with few ports connect repeatedly, with the protection active and inactive. None of their packets may be dropped. Clients
// that complete their handshakes must not activate the protection: each has at most one SYN without an answer, and on a busy machine fewer packets
// are lost than the rate allows.
func TestChurn(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.target = plan.TargetXDP
				s.nginx()
				for _, clients := range churned() {
					s.churn(clients, fmt.Sprintf("start: {rate: 100/s, burst: %d}", 2*clients+100))
				}
				if p, counts := s.status(); p.Active || counts["answered"] > 0 {
					t.Errorf("clients who complete what they begin start the protection: %v", counts)
				}
				for _, clients := range churned() {
					s.churn(clients, always, idle, early, idle)
				}
			})
		})
	}
}

// churn runs the given number of clients while the protection changes from each of protections to the next.
func (s *synScene) churn(clients int, protections ...string) {
	s.Helper()
	s.protect(protections[0], "")
	c := s.newChurn(clients)
	for _, syn := range protections {
		s.protect(syn, "")
		c.while(int64(testutil.Scaled(200, 400) + clients))
	}
	c.end()
	if _, counts := s.status(); counts["invalid"] > 0 || counts["limited"] > 0 {
		s.Errorf("%d clients have packets dropped: %v", clients, counts)
	}
}
