// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// site is a server with a policy, and a client. Each is a separate host.
type site struct {
	*testing.T
	control.Instance
	ctx            context.Context
	server, client *lab.Host
	again          uint32 // number of segments that echoed has retransmitted, including those that the other end reports as duplicates
}

// inSite runs a test in a site.
func inSite(t *testing.T, test func(*site)) {
	t.Helper()
	testutil.RequireRoot(t)
	for _, tool := range []string{"nft", "iptables-restore", "ipset"} {
		testutil.RequireTool(t, tool)
	}
	s := &site{T: t, Instance: control.Instance{Dir: ownDir(t)}}
	err := lab.Run(t.Context(), func(ctx context.Context, l *lab.Lab) (err error) {
		s.ctx = ctx
		if s.server, err = l.Host("server"); err != nil {
			return err
		}
		if s.client, err = l.Host("client"); err != nil {
			return err
		}
		_, _, err = l.Connect(s.client, s.server, lab.LinkOptions{
			A: lab.EndOptions{Addrs: lab.ParseAddrs("10.0.0.1/24 fd00::1/64")},
			B: lab.EndOptions{Addrs: lab.ParseAddrs("10.0.0.2/24 fd00::2/64")},
		})
		if err == nil {
			test(s)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *site) apply(w way, text string) {
	s.Helper()
	err := s.server.Do(func() error {
		p, err := policy.Parse("policy.yaml", []byte("devices: [client]\n"+text))
		if err == nil {
			_, err = s.Apply(s.ctx, p, control.ApplyOptions{Target: w.target})
		}
		return err
	})
	if err != nil {
		s.Fatalf("%s: %v", w.name, err)
	}
}

func (s *site) unload() {
	s.Helper()
	if err := s.server.Do(func() error { return s.Unload(s.ctx) }); err != nil {
		s.Error(err)
	}
}

// serve answers every connection to a port of the server with one byte.
func (s *site) serve(address string) {
	s.Helper()
	l, err := s.server.Listen(netip.MustParseAddrPort(address))
	if err != nil {
		s.Fatal(err)
	}
	testutil.Serve(s.T, l, func(c net.Conn) { c.Write([]byte{'.'}) })
}

// get connects from a host to an address, and reads the byte that serve sends.
func (s *site) get(from *lab.Host, address string) error {
	return s.getWithin(slow, from, address)
}

func (s *site) getWithin(wait time.Duration, from *lab.Host, address string) error {
	ctx, cancel := context.WithTimeout(s.ctx, wait)
	defer cancel()
	c, err := from.Dial(ctx, "tcp", netip.MustParseAddrPort(address))
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(wait))
	_, err = io.ReadAll(c)
	return err
}

// entries returns the number of connections that the server tracks.
func (s *site) entries() int {
	s.Helper()
	c, err := s.server.Conntrack()
	if err != nil {
		s.Fatal(err)
	}
	return c.Entries
}

// timedOut reports whether an error is a timeout, either of the context or of the socket.
func timedOut(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// untracked empties conntrack's table, and makes the client connect to addresses. None of these connections may be tracked.
func (s *site) untracked(w way, addresses ...string) {
	s.Helper()
	if err := s.server.FlushConntrack(); err != nil {
		s.Fatal(err)
	}
	for _, address := range addresses {
		if err := s.get(s.client, address); err != nil {
			s.Errorf("%s: %s: %v", w.name, address, err)
		}
	}
	if n := s.entries(); n != 0 {
		s.Errorf("%s: %d connections to %v are tracked", w.name, n, addresses)
	}
}

// tracked makes the client connect to an address. The connection must be tracked.
func (s *site) tracked(w way, address string) {
	s.Helper()
	if err := s.get(s.client, address); err != nil {
		s.Errorf("%s: %s: %v", w.name, address, err)
	}
	if n := s.entries(); n == 0 {
		s.Errorf("%s: connections to %s are not tracked", w.name, address)
	}
}

// TestTracking makes connections to tracked and to untracked services.
func TestTracking(t *testing.T) {
	inSite(t, func(s *site) {
		for _, address := range []string{"10.0.0.2:8080", "[fd00::2]:8080", "10.0.0.2:8081", "127.0.0.1:8082"} {
			s.serve(address)
		}
		for _, w := range []way{ways[0], ways[2], ways[3]} {
			for _, loopback := range []bool{true, false} {
				policy := `
default: drop
services:
  - {name: web, port: tcp/8080, track: false}
  - {name: other, port: tcp/8081, track: true}
`
				if loopback {
					policy += "untracked: [loopback]\n"
				}
				s.apply(w, policy)
				s.untracked(w, "10.0.0.2:8080", "[fd00::2]:8080")
				if err := s.get(s.server, "127.0.0.1:8082"); err != nil {
					t.Errorf("%s: loopback: %v", w.name, err)
				}
				if n := s.entries(); (n == 0) != loopback {
					t.Errorf("%s: with loopback untracked %t, %d of its connections are tracked", w.name, loopback, n)
				}
				s.tracked(w, "10.0.0.2:8081")
				if err := s.getWithin(time.Second, s.client, "10.0.0.2:8083"); !timedOut(err) {
					t.Errorf("%s: a port that nobody serves: %v", w.name, err)
				}
				s.unload()
			}
		}
	})
}

// TestTrackingByKeys makes connections from and to trusted addresses, and from and to other addresses. The rules of a policy are in force.
func TestTrackingByKeys(t *testing.T) {
	inSite(t, func(s *site) {
		for _, address := range []string{"10.0.0.2:8080", "[fd00::2]:8080", "10.0.0.2:8081"} {
			s.serve(address)
		}
		for _, w := range []way{ways[0], ways[2], ways[3]} {
			s.apply(w, `
default: drop
sets: {trusted: [10.0.0.0/28, "fd00::/64"]}
untracked: [{from: $trusted, port: tcp/8080}, multicast, {proto: [ospf, vrrp]}]
services: [{name: web, port: tcp/8080}, {name: other, port: tcp/8081, track: true}]
`)
			s.untracked(w, "10.0.0.2:8080", "[fd00::2]:8080")
			s.tracked(w, "10.0.0.2:8081")
			s.unload()
		}
	})
}

// TestReject checks the answers that a client gets from `reject`.
func TestReject(t *testing.T) {
	inSite(t, func(s *site) {
		s.serve("10.0.0.2:9000")
		s.serve("[fd00::2]:9000")
		for _, w := range []way{ways[1], ways[2], ways[3]} {
			s.apply(w, `
rules:
  - {name: stream, proto: tcp, port: 9000, from: ["10.0.0.0/24", "fd00::/64"], then: reject}
  - {name: datagram, proto: udp, port: 9001, from: ["10.0.0.0/24", "fd00::/64"], then: reject}
`)
			for _, host := range []string{"10.0.0.2", "fd00::2"} {
				if err := s.get(s.client, net.JoinHostPort(host, "9000")); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s: tcp to %s: %v, want it refused", w.name, host, err)
				}
				if err := s.datagram(net.JoinHostPort(host, "9001")); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s: udp to %s: %v, want it refused", w.name, host, err)
				}
			}
			var counts string
			err := s.server.Do(func() error {
				status, err := s.Status(s.ctx)
				if err == nil {
					for _, r := range status.Rules {
						counts += fmt.Sprintf("%s %s %d; ", r.Name, r.Verdict, r.Packets)
					}
				}
				return err
			})
			if want := "stream reject 2; datagram reject 2; "; err != nil || counts != want {
				t.Errorf("%s: %s (%v), want %s", w.name, counts, err, want)
			}
			s.unload()
		}
	})
}

// datagram sends a datagram from the client, and returns the error that it causes.
func (s *site) datagram(address string) error {
	ctx, cancel := context.WithTimeout(s.ctx, slow)
	defer cancel()
	c, err := s.client.Dial(ctx, "udp", netip.MustParseAddrPort(address))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("?")); err != nil {
		return err
	}
	c.SetReadDeadline(time.Now().Add(slow))
	_, err = c.Read(make([]byte, 16))
	return err
}

// TestWatch adds and removes an address of the host while Watch runs, and lets a trial end.
func TestWatch(t *testing.T) {
	e := newEnds(t)
	if e == nil {
		return
	}
	const own = "rules: [{name: here, proto: udp, to: local, then: drop}]"
	if _, err := e.try(own, control.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan daemon.Event, 100), make(chan error)
	go func() { done <- daemon.Watch(ctx, e.Instance, "", nil, func(event daemon.Event) { events <- event }) }()
	eventually := func(want string) {
		t.Helper()
		const packet = "udp 198.51.100.1:5 > 192.0.2.77:9"
		if !testutil.Eventually(slow, func() bool { return e.ask(packet) == want }) {
			t.Fatalf("%s, want %s", e.ask(packet), want)
		}
	}
	eventually("pass default")
	e.ip("addr add 192.0.2.77/24 dev fw0")
	eventually("drop here")
	e.ip("addr del 192.0.2.77/24 dev fw0")
	eventually("pass default")
	if _, err := e.try("", control.ApplyOptions{Target: ways[2].target, Confirm: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	e.ip("addr add 192.0.2.77/24 dev fw0")
	eventually("drop here") // the end of the trial has restored this policy
	for end := time.After(slow); ; {
		select {
		case event := <-events:
			if event.Err != nil {
				t.Errorf("event: %v", event.Err)
			}
			if event.Text != "the trial of generation 2 ended unconfirmed: the previous policy is in force again" {
				continue
			}
		case <-end:
			t.Error("no event tells of the end of the trial")
		}
		break
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
