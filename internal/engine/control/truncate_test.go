// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// resolve starts a DNS server over UDP and TCP.
func (s *site) resolve(address string) {
	s.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		header := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET, Ttl: 1}
		m.Answer = []dns.RR{&dns.TXT{Hdr: header, Txt: []string{w.LocalAddr().Network()}}}
		if header.Rrtype == dns.TypeMX {
			m.Answer = []dns.RR{&dns.MX{Hdr: header, Mx: w.LocalAddr().Network() + "."}}
		}
		w.WriteMsg(m)
	})
	listener, err := s.server.Listen(netip.MustParseAddrPort(address))
	if err != nil {
		s.Fatal(err)
	}
	var packets net.PacketConn
	err = s.server.Do(func() (err error) {
		packets, err = net.ListenPacket("udp", address)
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	for _, server := range []*dns.Server{{Listener: listener, Handler: handler}, {PacketConn: packets, Handler: handler}} {
		go server.ActivateAndServe()
		s.Cleanup(func() { server.Shutdown() })
	}
}

// takeReplies attaches an XDP program that passes all packets to the client's device. A veth without a program accepts frames that the other end
// sends with XDP_TX, but does not wake its reader: https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c, veth_xdp_flush.
func (s *site) takeReplies() (end func()) {
	s.Helper()
	var detach func() error
	err := s.client.Do(func() (err error) {
		detach, err = testutil.AttachForeign("server")
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	end = sync.OnceFunc(func() { detach() })
	s.Cleanup(end)
	return end
}

// resolver returns Go's own resolver on a host. It appends to asked the network of each query, such as udp or tcp.
func (s *site) resolver(on *lab.Host, address string) (r *net.Resolver, asked *[]string) {
	asked = new([]string)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		*asked = append(*asked, network)
		var c net.Conn
		err := on.Do(func() (err error) {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
	return &net.Resolver{PreferGo: true, Dial: dial}, asked
}

// askMany asks for the mail servers of different names. All answers must come over UDP.
func (s *site) askMany(r *net.Resolver, asked *[]string, names int, when string) {
	s.Helper()
	*asked = nil
	for i := range names {
		mx, err := r.LookupMX(s.ctx, fmt.Sprintf("n%d.example.", i))
		if err != nil || len(mx) != 1 || mx[0].Host != "udp." {
			s.Errorf("%s: name %d of %d: %v, %v", when, i, names, mx, err)
			return
		}
	}
	if slices.Contains(*asked, "tcp") {
		s.Errorf("%s: some of %d names were asked for over TCP", when, names)
	}
}

// TestGuardServes makes a real client ask a guarded resolver. First the client asks for as many names at once as any client may. Then it asks for a
// type that only verified clients get over UDP, so it asks again over TCP. TCP verifies the client. So at last it gets that type, and answers for far
// more names, over UDP.
func TestGuardServes(t *testing.T) {
	inSite(t, func(s *site) {
		s.takeReplies()
		s.apply(ways[0], "default: drop\nservices: [{name: dns, port: [udp/53, tcp/53], guard: dns, track: false}]\n")
		defer s.unload()
		for _, address := range []string{"10.0.0.2:53", "[fd00::2]:53"} {
			s.resolve(address)
			r, asked := s.resolver(s.client, address)
			s.askMany(r, asked, 39, address+", not verified")
			for _, over := range [][]string{{"udp", "tcp"}, {"udp"}} {
				*asked = nil
				texts, err := r.LookupTXT(s.ctx, "wWw.example.")
				if err != nil || !slices.Equal(texts, over[len(over)-1:]) || !slices.Equal(*asked, over) {
					t.Errorf("%s: TXT: %q, %v, asked over %q, want %q", address, texts, err, *asked, over)
				}
			}
			s.askMany(r, asked, 500, address+", verified")
		}
	})
}

// TestTruncate tests XDP's truncated answers to queries of one type, over IPv4 and IPv6. A real client must ask again over TCP. The client's kernel
// verifies the checksums.
func TestTruncate(t *testing.T) {
	inSite(t, func(s *site) {
		s.takeReplies()
		s.apply(ways[0], `
default: pass
rules:
  - {name: texts, dns: {type: [TXT]}, then: truncate}
`)
		defer s.unload()
		for _, address := range []string{"10.0.0.2:53", "[fd00::2]:53"} {
			s.resolve(address)
			r, asked := s.resolver(s.client, address)
			texts, err := r.LookupTXT(s.ctx, "wWw.example.")
			if err != nil || !slices.Equal(texts, []string{"tcp"}) || !slices.Equal(*asked, []string{"udp", "tcp"}) {
				t.Errorf("%s: TXT: %q, %v, asked over %q", address, texts, err, *asked)
			}
			*asked = nil
			mx, err := r.LookupMX(s.ctx, "wWw.example.")
			if err != nil || len(mx) != 1 || mx[0].Host != "udp." || !slices.Equal(*asked, []string{"udp"}) {
				t.Errorf("%s: MX: %v, %v, asked over %q", address, mx, err, *asked)
			}
		}
		var status *control.Status
		if err := s.server.Do(func() (err error) { status, err = s.Status(s.ctx); return err }); err != nil {
			t.Fatal(err)
		}
		rule, replies := status.Rules[0], status.Replies
		if rule.Packets != 2 || replies == nil || replies.Packets != 2 || replies.Bytes == 0 || replies.Bytes > rule.Bytes {
			t.Errorf("status: rule %+v, replies %+v", rule, replies)
		}
	})
}
