// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/test/testutil"
)

// firstManyPort is the first port of the server's UDP sockets. crowdPatience is the longest time that packets may take on a busy machine.
const (
	firstManyPort = 1024
	crowdPatience = time.Minute
)

// manyFamily has addresses of one address family: the server's, that of the peer to which its sockets send, and that of a stranger on the same link.
type manyFamily struct{ own, peer, stranger string }

var manyFamilies = []manyFamily{{"10.1.0.2", "10.1.0.1", "10.1.0.7"}, {"fd01::2", "fd01::1", "fd01::7"}}

const peerPort, strangerPort = 7777, 7778

// crowd is a large number of UDP sockets of the server, each on its own port. Their address families alternate.
type crowd struct {
	*scene
	size  int // the number of sockets
	parts []*crowdPart
	got   []string // the data that each socket has received
}

// crowdPart has a part of the sockets, in a table of file descriptors of its own. One table cannot have all of them.
type crowdPart struct {
	first int
	fds   []int
	run   chan func()
}

const partSockets = 15_000

func (c *crowd) family(i int) manyFamily { return manyFamilies[i%len(manyFamilies)] }

// connected reports whether a socket is connected, and so accepts datagrams only from the peer.
func (c *crowd) connected(i int) bool { return i/len(manyFamilies)%2 == 0 }

// newCrowd opens size sockets, and connects half of them. It also gives the client the strangers' addresses.
func newCrowd(s *scene, size int) *crowd {
	s.Helper()
	c := &crowd{scene: s, size: size}
	err := c.client.Do(func() error {
		for _, f := range manyFamilies {
			line := "addr add " + f.stranger + "/24 dev server"
			if netip.MustParseAddr(f.stranger).Is6() {
				line = "addr add " + f.stranger + "/64 dev server nodad"
			}
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
		}
		return nil
	})
	if err != nil {
		c.Fatal(err)
	}
	for first := 0; first < c.size; first += partSockets {
		p := &crowdPart{first: first, run: make(chan func())}
		made := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread and its sockets end with the goroutine
			made <- unix.Unshare(unix.CLONE_FILES)
			for f := range p.run {
				f()
			}
		}()
		c.Cleanup(func() { close(p.run) })
		err := <-made
		if err == nil {
			p.do(func() { err = c.server.Do(func() error { return c.openPart(p) }) })
		}
		if err != nil {
			c.Fatal(err)
		}
		c.parts = append(c.parts, p)
	}
	return c
}

// do runs a function on the thread that has the file descriptors, and waits until it returns. The function must not end the test.
func (p *crowdPart) do(f func()) {
	done := make(chan struct{})
	p.run <- func() { defer close(done); f() }
	<-done
}

func (c *crowd) openPart(p *crowdPart) error {
	for i := p.first; i < min(c.size, p.first+partSockets); i++ {
		own := netip.AddrPortFrom(netip.MustParseAddr(c.family(i).own), uint16(firstManyPort+i))
		domain := unix.AF_INET
		if own.Addr().Is6() {
			domain = unix.AF_INET6
		}
		fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		p.fds = append(p.fds, fd)
		err = unix.Bind(fd, sockaddr(own))
		if err == nil && c.connected(i) {
			err = unix.Connect(fd, c.peer(i))
		}
		if err != nil {
			return fmt.Errorf("socket %v: %w", own, err)
		}
	}
	return nil
}

// each calls a function for each socket.
func (c *crowd) each(f func(i, fd int)) {
	for _, p := range c.parts {
		p.do(func() {
			for i, fd := range p.fds {
				f(p.first+i, fd)
			}
		})
	}
}

func (c *crowd) peer(i int) unix.Sockaddr {
	return sockaddr(netip.AddrPortFrom(netip.MustParseAddr(c.family(i).peer), peerPort))
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// ask makes the sockets that are not connected send to the peer.
func (c *crowd) ask() {
	c.Helper()
	c.askFrom(func(i int) bool { return !c.connected(i) })
}

// askFrom makes those sockets send to the peer for which the function returns true.
func (c *crowd) askFrom(which func(i int) bool) {
	c.Helper()
	c.each(func(i, fd int) {
		if !which(i) {
			return
		}
		var to unix.Sockaddr // a connected socket needs none
		if !c.connected(i) {
			to = c.peer(i)
		}
		if err := unix.Sendto(fd, []byte("question"), 0, to); err != nil && !errors.Is(err, unix.ECONNREFUSED) { // an ICMP error for an earlier question
			c.Errorf("socket %d asks: %v", i, err)
		}
	})
}

// flood sends a text to each socket from a port of the client. The function from selects the source from the addresses of a family.
func (c *crowd) flood(text string, port int, from func(manyFamily) string) {
	c.Helper()
	c.floodTo(text, port, from, func(int) bool { return true })
}

// floodTo is like flood, but sends only to the sockets for which the function which returns true.
func (c *crowd) floodTo(text string, port int, from func(manyFamily) string, which func(i int) bool) {
	c.Helper()
	var sockets []*net.UDPConn
	for _, f := range manyFamilies {
		var s net.PacketConn
		err := c.client.Do(func() (err error) {
			s, err = net.ListenPacket("udp", net.JoinHostPort(from(f), fmt.Sprint(port)))
			return err
		})
		if err == nil {
			err = testutil.TellFull(s.(*net.UDPConn))
		}
		if err != nil {
			c.Fatal(err)
		}
		defer s.Close()
		sockets = append(sockets, s.(*net.UDPConn))
	}
	for i := range c.size {
		if !which(i) {
			continue
		}
		to := netip.AddrPortFrom(netip.MustParseAddr(c.family(i).own), uint16(firstManyPort+i))
		_, err := sockets[i%len(sockets)].WriteToUDPAddrPort([]byte(text), to)
		for errors.Is(err, unix.ENOBUFS) {
			time.Sleep(time.Millisecond)
			_, err = sockets[i%len(sockets)].WriteToUDPAddrPort([]byte(text), to)
		}
		if err != nil {
			c.Fatalf("to %v: %v", to, err)
		}
	}
}

// read reads the data that the sockets have received. It returns the number of sockets that have received data since forget.
func (c *crowd) read() (n int) {
	buffer := make([]byte, 100)
	c.each(func(i, fd int) {
		for {
			size, _, err := unix.Recvfrom(fd, buffer, 0)
			if err != nil {
				break
			}
			c.got[i] += string(buffer[:size])
		}
		if c.got[i] != "" {
			n++
		}
	})
	return n
}

// forget clears the data that read has recorded.
func (c *crowd) forget() { c.got = make([]string, c.size) }

// answered checks that exactly the given number of sockets receive an answer, and that each receives only one.
func (c *crowd) answered(when string, want int) {
	c.Helper()
	came := 0
	testutil.Eventually(crowdPatience, func() bool { came = c.read(); return came >= want })
	if came != want {
		c.Errorf("%s: %d sockets have received something, want %d", when, came, want)
	}
	c.onlyAnswers(when)
}

// onlyAnswers checks that no socket has received anything except one answer.
func (c *crowd) onlyAnswers(when string) {
	c.Helper()
	for i, text := range c.got {
		if text != "" && text != "answer" {
			c.Fatalf("%s: socket %d has received %q", when, i, text)
		}
	}
}

// dropping checks that the default drops at least the given number of packets while does runs.
func (c *crowd) dropping(when string, want uint64, does func()) {
	c.Helper()
	before := c.byDefault()
	does()
	if !testutil.Eventually(crowdPatience, func() bool { return c.byDefault() >= before+want }) {
		c.Errorf("%s: of %d packets %d are dropped", when, want, c.byDefault()-before)
	}
}

// byDefault returns the number of packets about which the default has decided.
func (s *scene) byDefault() (packets uint64) {
	s.Helper()
	err := s.server.Do(func() error {
		status, err := s.Status(s.ctx)
		if err == nil {
			packets = status.Default.Packets
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return packets
}

// TestManySockets opens 60,000 UDP sockets on the server. Connected sockets must get answers from the first apply on, and the other sockets as soon
// as they have sent a question. Datagrams to the same ports from another port or another address of the link must all be dropped.
func TestManySockets(t *testing.T) {
	inScene(t, func(s *scene) {
		const all = 60_000
		c := newCrowd(s, all)
		s.apply(plan.TargetXDP, "default: drop\nservices: [{name: mark, port: udp/9}]\n")
		peer := func(f manyFamily) string { return f.peer }
		c.forget()
		c.dropping("before the others ask", all/2, func() { c.flood("answer", peerPort, peer) })
		c.answered("after the first apply", all/2)
		c.ask()
		c.forget()
		c.flood("answer", peerPort, peer)
		c.answered("after questions", all)
		c.forget()
		c.dropping("from another port", all, func() { c.flood("forged", strangerPort, peer) })
		c.dropping("from another address", all, func() { c.flood("forged", peerPort, func(f manyFamily) string { return f.stranger }) })
		c.answered("forged", 0)
		c.flood("answer", peerPort, peer)
		c.answered("after the forged ones", all)
	})
}
