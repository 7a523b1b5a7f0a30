// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/floodwall/floodwall/test/testutil"
)

// cookieLife exceeds the lifetime of every cookie. SYNPROXY counts minutes, and accepts a cookie for two minutes and a part of another one
// (net/ipv4/syncookies.c, MAX_SYNCOOKIE_AGE). Mode host has two slots of 69 s.
const cookieLife = 190 * time.Second

// TestCookieReplay captures the ACK of a handshake, and sends it again in different ways: from another port and address, to another port and another
// server of the same service, and during the connection. None of these ACKs may open a connection. In between, the client itself connects with the
// ACK. The long form also sends an ACK after its cookie has expired.
func TestCookieReplay(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.port = "[tcp/80, tcp/81]"
				e := s.echo()
				others := map[string]netip.AddrPort{}
				for _, a := range servers {
					next := a.Addr().Next()
					device := map[string]string{"host": "lo", "router": "protects"}[mode]
					s.ip(s.server, "addr add "+netip.PrefixFrom(next, next.BitLen()).String()+" dev "+device+nodad(a))
					others[family(a)] = netip.AddrPortFrom(next, 80)
					for _, at := range []netip.AddrPort{netip.AddrPortFrom(next, 80), netip.AddrPortFrom(a.Addr(), 81)} {
						go e.serve(s.listen(at.String()))
					}
				}
				s.protect(always, "")
				var late []*captured
				for i, to := range servers {
					for j, plain := range []bool{false, true} {
						p := s.newPeer(to, uint16(21_000+100*i+10*j))
						p.plain = plain
						late = append(late, p.replayAll(e, others[family(to)]))
					}
				}
				if !testutil.Long() {
					return
				}
				time.Sleep(cookieLife)
				for _, c := range late {
					c.again(e, "when its time is over", c.peer.from, c.peer.to)
				}
			})
		})
	}
}

const duringConnection = "during the connection"

// captured is an ACK with a cookie.
type captured struct {
	peer     *peer
	seq, ack uint32
	options  []layers.TCPOption
}

// replayAll makes a peer get a SYN-ACK and connect. It replays the peer's ACK before and during the connection. It returns the ACK of another
// handshake, which has not been sent yet.
func (p *peer) replayAll(e *echo, other netip.AddrPort) *captured {
	p.Helper()
	c := p.capture()
	from, to := p.from, p.to
	c.again(e, "from another port", netip.AddrPortFrom(from.Addr(), from.Port()+1), to)
	c.again(e, "from another address", netip.AddrPortFrom(from.Addr().Next(), from.Port()), to)
	c.again(e, "to another server", from, other)
	c.again(e, "to another port", from, netip.AddrPortFrom(to.Addr(), 81))
	p.send(segment{flags: ".", options: p.stamps()})
	p.awaitWindow()
	p.say("mine")
	c.again(e, duringConnection, from, to)
	p.say("still mine")
	p.from = netip.AddrPortFrom(from.Addr(), from.Port()+5)
	return p.capture()
}

// capture sends a SYN, and returns the ACK that answers the SYN-ACK.
func (p *peer) capture() *captured {
	p.Helper()
	p.seq += 1_000_000
	if p.plain {
		p.send(segment{flags: "S"})
		got := p.want("SYN-ACK", func(g *layers.TCP) bool { return g.SYN && g.ACK && g.Ack == p.seq+1 })
		p.seq, p.ack = p.seq+1, got.Seq+1
	} else {
		p.knock("")
	}
	return &captured{peer: p, seq: p.seq, ack: p.ack, options: p.stamps()}
}

// again sends the ACK from one address to another, without and with data. No ACK may open a connection. During the connection it sends no data,
// because the data would belong to the connection.
func (c *captured) again(e *echo, what string, from, to netip.AddrPort) {
	c.peer.Helper()
	p := *c.peer
	p.from, p.to, p.seq, p.ack = from, to, c.seq, c.ack
	before := e.accepted.Load()
	payloads := []string{"", "stolen", ""}
	if what == duringConnection {
		payloads = payloads[:1]
	}
	for _, payload := range payloads {
		p.send(segment{flags: "P.", options: c.options, payload: payload})
	}
	time.Sleep(again)
	if n := e.accepted.Load() - before; n != 0 {
		p.Errorf("%s > %s, plain %t: %d connections come of an ACK that is replayed %s", from, to, p.plain, n, what)
	}
}

// nodad returns the option of ip that makes an IPv6 address usable at once.
func nodad(a netip.AddrPort) string {
	if a.Addr().Is6() {
		return " nodad"
	}
	return ""
}
