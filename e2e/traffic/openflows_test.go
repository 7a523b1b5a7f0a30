// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
)

// pushed is a connection that the server opened, and on which only the other end sends.
type pushed struct{ own, peer net.Conn }

func (s *scene) pushed(to string) pushed {
	s.Helper()
	l, err := s.client.Listen(netip.MustParseAddrPort(to))
	if err != nil {
		s.Fatal(err)
	}
	defer l.Close()
	own, err := s.server.Dial(s.ctx, "tcp", netip.MustParseAddrPort(to))
	if err != nil {
		s.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { own.Close(); peer.Close() })
	return pushed{own, peer}
}

// arrives returns an error unless data that the peer sends arrives.
func (p pushed) arrives() error {
	p.own.SetReadDeadline(time.Now().Add(patience))
	if _, err := p.peer.Write([]byte("news")); err != nil {
		return err
	}
	n, err := p.own.Read(make([]byte, 100))
	if err == nil && n != 4 {
		err = fmt.Errorf("%d bytes", n)
	}
	return err
}

// TestOpenFlowsGoOn opens connections on which only the other end sends. They must survive the first apply, another apply, the return to an earlier
// policy, and a trial that is rolled back.
func TestOpenFlowsGoOn(t *testing.T) {
	const closed = "default: drop\nservices: [{name: mark, port: udp/9}]\n"
	inScene(t, func(s *scene) {
		for _, target := range targets {
			p4 := s.pushed("10.1.0.1:7001")
			p6 := s.pushed("[fd01::1]:7001")
			check := func(when string) {
				t.Helper()
				for _, p := range []pushed{p4, p6} {
					if err := p.arrives(); err != nil {
						t.Errorf("%s: after %s nothing comes from %v: %v", target, when, p.own.RemoteAddr(), err)
					}
				}
			}
			check("nothing")
			s.apply(target, closed)
			check("the first apply")
			s.apply(target, closed+"rules: [{name: more, port: tcp/99, then: pass}]\n")
			check("another apply")
			s.apply(target, "default: pass\n")
			late := s.pushed("10.1.0.1:7002")
			s.back()
			check("the return to a policy")
			if err := late.arrives(); err != nil {
				t.Errorf("%s: what began under another policy is cut by the return: %v", target, err)
			}
			s.applyWith(control.ApplyOptions{Target: target, Confirm: time.Minute}, "default: drop\nreplies: drop\n")
			s.back()
			check("a trial")
			s.unload()
		}
	})
}

// back rolls back to the previous policy. During a trial, it ends the trial.
func (s *scene) back() {
	s.Helper()
	if err := s.server.Do(func() error { _, err := s.Rollback(s.ctx); return err }); err != nil {
		s.Fatal(err)
	}
}
