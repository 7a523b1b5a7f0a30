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

// churn is clients with few addresses and ports, as a reverse proxy or a NAT has them: each request has a connection of its
// own, the server ends it, and the port is used again while the server is in TIME-WAIT.
type churn struct {
	*synScene
	pause    time.Duration // of a client after an answer
	stop     atomic.Bool
	group    sync.WaitGroup
	answered atomic.Int64
	mu       sync.Mutex
	wrong    map[string]int // what went wrong, and how often
}

// churnPorts are those that clients use, few enough to be used again within a second.
const churnPorts = "30000 30399"

// churnRate is how many connections all clients together have in a second, at most. The rest of the CPU is for the policies
// that are applied meanwhile.
const churnRate = 1000

// newChurn starts so many clients, which ask one request after the other. It must be ended.
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

// while waits until so many more requests are answered.
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

// end ends the clients, of whom nothing may have gone wrong.
func (c *churn) end() {
	c.Helper()
	c.stop.Store(true)
	c.group.Wait()
	for what, times := range c.wrong {
		c.Errorf("%d clients: %s", times, what)
	}
}

// askOnce asks for a small page over a connection of its own. It goes to the kernel directly, to be as fast as can be.
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

// connect connects a socket. Go's runtime interrupts system calls that take long, by signals.
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

// churned are how many clients ask at a time.
func churned() []int {
	if testutil.Long() {
		return []int{1, 20, 200}
	}
	return []int{100}
}

// TestChurn has clients with few ports connect again and again, in whatever state the protection is. No packet of theirs is
// dropped. As long as they complete what they begin, they do not start the protection: each has one SYN
// at a time under way, and what is lost on a busy machine is less than the rate.
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

// churn has so many clients ask while the protection changes from one to the next.
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
