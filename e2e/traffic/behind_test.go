// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestServerSpeaksFirst runs a server that greets its clients, as mail and SSH servers do, behind each kind of SYNPROXY. The server must not reject a
// first segment of a connection because of its echoed timestamp. If it did, it would have to send its SYN-ACK again a second later.
func TestServerSpeaksFirst(t *testing.T) {
	for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables} {
		t.Run(string(target), func(t *testing.T) {
			t.Parallel()
			synInScene(t, "router", 1, 1500, func(s *synScene) {
				s.target = target
				for _, at := range servers {
					s.greet(at)
				}
				s.protect(always, "")
				for _, to := range servers {
					if err := s.hearGreeting(to); err != nil {
						t.Errorf("%s: %v", to, err)
					}
				}
				// A kernel before 6.15 does not check the echoed timestamp, and does not have this counter.
				if n := s.netstat(s.server, "TSEcrRejected"); n != 0 {
					t.Errorf("the server refused %d segments for the timestamp that they echo", n)
				}
			})
		})
	}
}

const greeting = "220 here I am\r\n"

// greet starts a server that sends a greeting first.
func (s *synScene) greet(at netip.AddrPort) {
	l := s.listen(at.String())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, greeting)
			c.Close()
		}
	}()
}

func (s *synScene) hearGreeting(to netip.AddrPort) error {
	c, err := s.dial(s.clients[0], to)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = io.ReadFull(c, make([]byte, len(greeting)))
	return err
}

// netstat returns a TCP counter of a host. It is 0 if the host's kernel does not have the counter.
func (s *synScene) netstat(h *lab.Host, name string) (n int) {
	s.Helper()
	var text []byte
	err := h.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/netstat")
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	names, values, _ := strings.Cut(string(text), "\n")
	values, _, _ = strings.Cut(values, "\n")
	at := slices.Index(strings.Fields(names), name)
	if at < 0 {
		return 0
	}
	if n, err = strconv.Atoi(strings.Fields(values)[at]); err != nil {
		s.Fatal(err)
	}
	return n
}

// TestHalfOpen sends a SYN while cookies are inactive, and does not answer the SYN-ACK. After cookies have become active, the client sends the SYN
// again. It must get a cookie and be able to connect.
func TestHalfOpen(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.echo()
				s.protect(idle, "")
				var waiting []*peer
				for i, to := range servers {
					p := s.newPeer(to, uint16(20_000+i))
					p.send(segment{flags: "S", options: p.synOptions()})
					p.want("SYN-ACK", func(g *layers.TCP) bool { return g.SYN && g.ACK })
					waiting = append(waiting, p)
				}
				s.protect(always, "")
				for _, p := range waiting {
					p.send(segment{flags: "S", options: p.synOptions()})
					cookie := p.want("cookie", func(g *layers.TCP) bool { return g.SYN && g.ACK && (mode == "host" || g.Window == 0) })
					p.seq, p.ack = p.seq+1, cookie.Seq+1
					p.send(segment{flags: ".", options: p.stamps()})
					p.say("at last")
				}
			})
		})
	}
}

// TestResetOfBefore uses a port again right after a connection has used it. The client answers a late segment of the old connection with a reset, as
// TCP does in SYN-SENT (RFC 9293, 3.10.7.3). The reset reaches the server together with the new SYN. The server ignores the reset, because it does
// not belong to the new connection. The new connection must work. That must not depend on whether conntrack has already seen the server's answer or
// the late segment.
func TestResetOfBefore(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%t", late), func(t *testing.T) {
			t.Parallel()
			synInScene(t, "router", 1, 1500, func(s *synScene) {
				s.echo()
				s.target = plan.TargetXDP
				s.protect(idle, "")
				s.run(s.server, "nft add table inet t")
				s.run(s.server, "nft add chain inet t o { type filter hook output priority 0 ; }")
				for i, to := range servers {
					for n := range 4 { // the result must not depend on the sequence numbers
						s.resetOfBefore(to, uint16(20_000+4*i+n), late)
					}
				}
				if _, counts := s.status(); counts["invalid"] > 0 || counts["limited"] > 0 {
					t.Errorf("packets of honest clients are dropped: %v", counts)
				}
			})
		})
	}
}

// resetOfBefore sends a SYN, delays the answer, sends the reset, and then uses the connection. If late is true, the old segment that the reset
// answers passes the router after the SYN. Otherwise it passed the router before the SYN.
func (s *synScene) resetOfBefore(to netip.AddrPort, port uint16, late bool) {
	s.Helper()
	p := s.newPeer(to, port)
	p.connect()
	p.say("before")
	p.send(segment{flags: "F.", options: p.stamps()})
	end := p.want("FIN", func(g *layers.TCP) bool { return g.FIN })
	p.seq, p.ack = p.seq+1, end.Seq+1
	p.send(segment{flags: ".", options: p.stamps()})
	p.seq, p.ack, p.stamp = p.seq+1<<20, 0, 0
	s.run(s.server, "nft add rule inet t o tcp flags & (syn|ack) == syn|ack drop")
	p.send(segment{flags: "S", options: p.synOptions()})
	time.Sleep(again)
	if late { // its sequence numbers are not those of the new connection
		ack := layers.TCP{SrcPort: layers.TCPPort(to.Port()), DstPort: layers.TCPPort(port), Seq: p.seq + 1<<25, Ack: p.seq - 1<<24, ACK: true, Window: 60000}
		eth := p.eth
		eth.DstMAC = s.mac(-1, "server")
		frames := [][]byte{frameOf(eth, to, p.from, &ack, "")}
		err := s.server.Do(func() error {
			return testutil.SendFrames("protects", func() (now [][]byte) { now, frames = frames, nil; return now })
		})
		if err != nil {
			s.Fatal(err)
		}
	}
	p.send(segment{flags: "R", before: 1 << 24})
	time.Sleep(again)
	s.run(s.server, "nft flush chain inet t o")
	got := p.want("SYN-ACK", func(g *layers.TCP) bool { return g.SYN && g.ACK })
	p.seq, p.ack = p.seq+1, got.Seq+1
	p.send(segment{flags: ".", options: p.stamps()})
	p.say("after the reset")
}

// TestLostSYN drops the first SYN that SYNPROXY sends to the server. Until the next SYN, the client can only probe the window.
func TestLostSYN(t *testing.T) {
	for _, stamps := range []string{"0", "1"} {
		t.Run("timestamps "+stamps, func(t *testing.T) {
			t.Parallel()
			synInScene(t, "router", 1, 1500, func(s *synScene) {
				s.echo()
				s.protect(always, "")
				s.sysctl(s.clients[0], "ipv4/tcp_timestamps", stamps)
				s.run(s.server, "nft add table inet t")
				s.run(s.server, "nft add chain inet t i { type filter hook input priority 0 ; }")
				for _, to := range servers {
					s.run(s.server, "nft add rule inet t i meta nfproto "+strings.ToLower(family(to))+
						" tcp dport 80 tcp flags & (syn|ack) == syn limit rate 1/hour burst 1 packets drop")
					if err := s.visitEcho(s.clients[0], to); err != nil {
						t.Errorf("%s: %v", to, err)
					}
				}
			})
		})
	}
}

// TestEnding ends connections in which both ends have sent the same number of bytes. By sequence numbers alone, each segment of such a connection
// could acknowledge SYNPROXY's cookie. SYNPROXY must not open a connection twice, and must not answer the last ACK of a connection.
func TestEnding(t *testing.T) {
	t.Parallel()
	synInScene(t, "router", 1, 1500, func(s *synScene) {
		s.echo()
		s.protect(always, "")
		const visits = 40
		for i := range visits {
			if err := s.visitEcho(s.clients[0], servers[i%2]); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(500 * time.Millisecond) // the server closes after its clients
		_, counts := s.status()
		testutil.Eventually(patience, func() bool { _, counts = s.status(); return counts["proved"] >= visits })
		// On a busy machine, clients may have sent some SYNs again.
		if counts["proved"] != visits || counts["answered"] >= visits+visits/4 {
			t.Errorf("of %d connections: %v", visits, counts)
		}
	})
}

// TestStartedBehind makes connections through SYNPROXY. They must continue after the protection is turned off, and after everything is unloaded. When
// they have ended, nothing may be left on the host. If timestamps were no longer translated, half of the clients would reject the server's timestamps
// as old.
func TestStartedBehind(t *testing.T) {
	for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables} {
		t.Run(string(target), func(t *testing.T) {
			t.Parallel()
			synInScene(t, "router", 1, 1500, func(s *synScene) {
				s.target = target
				s.echo()
				s.protect(always, "")
				var started []net.Conn
				for i := range 10 {
					c, err := s.dial(s.clients[0], servers[i%2])
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					started = append(started, c)
				}
				s.converseAll(started, "under protection")
				s.protect("off", "")
				s.converseAll(started, "without")
				s.unload()
				s.converseAll(started, "without anything")
				if table := s.retained(); table == "" || s.release() {
					t.Errorf("table %q is left for connections that go on", table)
				}
				if err := s.protects.FlushConntrack(); err != nil {
					t.Fatal(err)
				}
				if err := s.protects.Do(func() error { return s.Unload(s.ctx) }); err != nil {
					t.Errorf("another unload: %v", err)
				}
				if tables := s.output(s.protects, "nft list tables"); strings.Contains(tables, "begun") || s.retained() != "" {
					t.Errorf("what is left: %s", tables)
				}
			})
		})
	}
}

// retained returns the name of the table that remains for connections that started through SYNPROXY.
func (s *synScene) retained() (table string) {
	s.Helper()
	if err := s.protects.Do(func() (err error) { table, err = s.Retained(s.ctx); return err }); err != nil {
		s.Error(err)
	}
	return table
}

// release removes the table that remains for connections that started through SYNPROXY, if no such connection is left. It reports whether it removed
// the table.
func (s *synScene) release() (released bool) {
	s.Helper()
	if err := s.protects.Do(func() (err error) { released, err = s.Release(s.ctx); return err }); err != nil {
		s.Error(err)
	}
	return released
}

func (s *synScene) converseAll(list []net.Conn, text string) {
	s.Helper()
	for _, c := range list {
		if err := converse(c, text); err != nil {
			s.Fatalf("%s: %s: %v", c.RemoteAddr(), text, err)
		}
	}
}
