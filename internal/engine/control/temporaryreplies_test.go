// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// datagrams opens a UDP socket of a host.
func (s *site) datagrams(of *lab.Host, address string) (c *net.UDPConn) {
	s.Helper()
	err := of.Do(func() error {
		a, err := net.ResolveUDPAddr("udp", address)
		if err == nil {
			c, err = net.ListenUDP("udp", a)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	return c
}

// said sends a datagram from one socket to another, and reports whether it arrives within a time.
func (s *site) said(from, to *net.UDPConn, within time.Duration) bool {
	s.Helper()
	if _, err := from.WriteTo([]byte("word"), to.LocalAddr()); err != nil {
		s.Fatal(err)
	}
	return testutil.Arrives(s, to, within)
}

// TestTemporarySparesReplies adds a temporary rule that drops packets from port 53, as for reflected answers, on each target. Answers to queries of
// this host must pass with each default, and other packets must not. A rule of a person that names sources must also drop answers.
func TestTemporarySparesReplies(t *testing.T) {
	inSite(t, func(s *site) {
		const soon = 100 * time.Millisecond
		for address, text := range map[string]string{"10.0.0.%": "default: pass\ndetect: {baseline: learn}\n", "[fd00::%]": "default: drop\nservices: [{name: open, port: udp/4000}]\n"} {
			at := func(host, port string) string { return strings.Replace(address, "%", host, 1) + ":" + port }
			server, asks, open := s.datagrams(s.client, at("1", "53")), s.datagrams(s.server, at("2", "0")), s.datagrams(s.server, at("2", "4000"))
			source := strings.Replace(address, "%", "1", 1)
			for _, w := range ways {
				s.apply(w, text)
				h := operate.Host{Instance: s.Instance, Warn: func(err error) { s.Errorf("warned: %v", err) }}
				rules := func(owner, rule string) {
					s.Helper()
					add := func([]manifest.Temporary) ([]manifest.Temporary, error) {
						if rule == "" {
							return nil, nil
						}
						now := time.Now()
						return []manifest.Temporary{{Name: "dns", Owner: owner, Rule: rule, Began: now, Until: now.Add(time.Hour)}}, nil
					}
					if err := s.server.Do(func() error { return h.ChangeTemporaryOf(s.ctx, owner, add) }); err != nil {
						s.Fatalf("%s: %v", w.name, err)
					}
				}
				from := "from: " + strings.Trim(source, "[]") + ", "
				for _, c := range []struct {
					owner, keys string
					spares      bool
				}{{operate.ByHand, "", true}, {operate.Automatic, from, true}, {operate.ByHand, from, false}} {
					rules(c.owner, "{name: dns, "+c.keys+"sport: udp/53, then: drop}")
					if s.said(server, open, soon) {
						t.Errorf("%s, %s, %s: what nobody asked for arrives", w.name, text, c.owner)
					}
					if !s.said(asks, server, slow) {
						t.Errorf("%s, %s: a question does not leave", w.name, text)
					}
					within := soon
					if c.spares {
						within = slow
					}
					if got := s.said(server, asks, within); got != c.spares {
						t.Errorf("%s, %s, rule of %s with %q: the answer arrives: %t", w.name, text, c.owner, c.keys, got)
					}
					rules(c.owner, "")
				}
				s.unload()
			}
		}
	})
}
