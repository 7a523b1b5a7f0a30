// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// unboundConf configures unbound for all addresses of the server, with two zones that stand for zones of the Internet. unbound has the data of one
// zone. The server of the other zone never answers.
const unboundConf = `server:
	interface: 0.0.0.0
	interface: ::0
	interface-automatic: yes
	access-control: 0.0.0.0/0 allow
	access-control: ::0/0 allow
	username: ""
	chroot: ""
	directory: "%[1]s"
	pidfile: ""
	use-syslog: no
	logfile: ""
	do-daemonize: no
	module-config: "iterator"
	do-not-query-localhost: no
auth-zone:
	name: "shop.example."
	zonefile: "%[1]s/zone"
	for-upstream: yes
	for-downstream: no
	fallback-enabled: no
stub-zone:
	name: "lame.example."
	stub-addr: 127.9.9.9@5399
remote-control:
	control-enable: no
`

// existing is the number of names in the zone: h0 to h49.
const existing = 50

// unbound starts unbound on the server. It serves clients on the client's link.
func (s *scene) unbound() {
	s.Helper()
	testutil.RequireTool(s.T, "unbound")
	if _, err := s.lab.NewSink(s.clientEnd, lab.PassAll); err != nil { // without it the client does not receive XDP's packets: see synScene.hear
		s.Fatal(err)
	}
	dir := s.TempDir()
	var zone strings.Builder
	zone.WriteString("$ORIGIN shop.example.\n$TTL 3600\n@ SOA ns host 1 3600 600 86400 60\n@ NS ns\n@ A 192.0.2.1\nns A 192.0.2.1\n")
	for i := range existing {
		fmt.Fprintf(&zone, "h%d A 192.0.2.%d\nh%d MX 10 h0\n", i, i, i)
	}
	conf := filepath.Join(dir, "unbound.conf")
	if err := errors.Join(os.WriteFile(conf, fmt.Appendf(nil, unboundConf, dir), 0o600), os.WriteFile(filepath.Join(dir, "zone"), []byte(zone.String()), 0o600)); err != nil {
		s.Fatal(err)
	}
	var out strings.Builder
	cmd := exec.CommandContext(s.ctx, "unbound", "-d", "-p", "-c", conf)
	cmd.Stderr = &out
	if err := s.server.Do(cmd.Start); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if !testutil.Eventually(time.Minute, func() bool {
		_, err := s.lookUp(s.server, "udp", "10.0.0.2:53", "shop.example", dns.TypeA)
		return err == nil
	}) {
		s.Fatalf("unbound does not answer: %s", out.String())
	}
}

// lookUp sends one query to a server. It returns the answer even if it is truncated.
func (s *scene) lookUp(from *lab.Host, network, to, name string, qtype uint16) (*dns.Msg, error) {
	conn, err := from.Dial(s.ctx, network, netip.MustParseAddrPort(to))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), qtype)
	m.SetEdns0(1232, false)
	c := dns.Client{Net: network, Timeout: 2 * time.Second}
	answer, _, err := c.ExchangeWithConn(m, &dns.Conn{Conn: conn, UDPSize: 1232})
	return answer, err
}

// resolve queries a server as clients do. It uses UDP, repeats the query after a loss, and uses TCP after a truncated answer. The result network is
// the protocol of the final answer.
func (s *scene) resolve(from *lab.Host, to, name string, qtype uint16) (answer *dns.Msg, network string) {
	s.Helper()
	var err error
	for range 8 {
		network = "udp"
		answer, err = s.lookUp(from, network, to, name, qtype)
		if err == nil && answer.Truncated {
			network = "tcp"
			answer, err = s.lookUp(from, network, to, name, qtype)
		}
		var timeout net.Error
		if err == nil {
			return answer, network
		}
		if !errors.As(err, &timeout) {
			break
		}
	}
	s.Fatalf("%s for %s: %v", to, name, err)
	return nil, ""
}

const namesPolicy = `
default: drop
checks: strict
services: [{name: dns, port: [udp/53, tcp/53], guard: {type: dns, limit: {rate: 500/s, per: from}, names: 50/s}, track: false}]
`

// namesPause slows down the flood of 3,000 random names, so that it does not use up the guard's rate of truncated answers. A client that queries
// another name needs one truncated answer.
const namesPause = time.Second / 10

// randomNames returns queries from random sources. The queried names are in a zone, but do not exist.
func randomNames(zone string) (lines []string) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		lines = append(lines, fmt.Sprintf("udp %d.%d.%d.%d:%d > 10.0.0.2:53 dns=A,x%d.%s", 20+r.IntN(100), r.IntN(256), r.IntN(256), r.IntN(256), 1024+r.IntN(60000), r.IntN(1e9), zone))
	}
	return lines
}

// TestRandomSubdomains floods unbound with queries for random names of a zone. Names that it has answered before must be answered over UDP for every
// client, in upper and lower case and for any type. A client that queries another name of the zone must repeat its query over TCP. From then on it
// gets answers over UDP. The flood must not affect other zones. After the flood, queries for the zone must be answered as before.
func TestRandomSubdomains(t *testing.T) {
	t.Parallel()
	inScene(t, func(s *scene) {
		s.unbound()
		s.apply(targets[0], namesPolicy)
		const half = existing / 2
		for i := range half {
			if a, by := s.resolve(s.client, "10.1.0.2:53", fmt.Sprintf("h%d.shop.example", i), dns.TypeA); by != "udp" || len(a.Answer) != 1 {
				t.Fatalf("without a flood, h%d is answered over %s with %v", i, by, a.Answer)
			}
		}
		for i := range 10 { // typing errors
			if a, by := s.resolve(s.client, "10.1.0.2:53", fmt.Sprintf("typo%d.shop.example", i), dns.TypeA); by != "udp" || a.Rcode != dns.RcodeNameError {
				t.Fatalf("without a flood, a name that does not exist is answered over %s with %v", by, a)
			}
		}
		s.besidePacedFlood(randomNames("shop.example"), namesPause, 10*time.Second, "dns:names", func() {
			s.zoneIsTold("shop.example", half)
			s.apply(targets[0], namesPolicy) // the next generation takes over the names that this one has learnt
			s.zoneIsTold("shop.example", half)
			for i := range half {
				for name, qtype := range map[string]uint16{fmt.Sprintf("h%d.shop.example", i): dns.TypeA, fmt.Sprintf("H%d.sHoP.eXample", i): dns.TypeMX} {
					a, by := s.resolve(s.client, "10.1.0.2:53", name, qtype)
					if by != "udp" || len(a.Answer) != 1 {
						t.Errorf("%s is answered over %s with %v", name, by, a.Answer)
					}
				}
			}
			if a, by := s.resolve(s.client, "10.1.0.2:53", "shop.example", dns.TypeA); by != "udp" || len(a.Answer) != 1 {
				t.Errorf("the zone itself is answered over %s with %v", by, a.Answer)
			}
			for to, name := range map[string]string{"10.1.0.2:53": fmt.Sprintf("h%d.shop.example", half), "[fd01::2]:53": "typo.shop.example"} {
				before, by := s.resolve(s.client, to, name, dns.TypeA)
				if by != "tcp" || (len(before.Answer) == 0) != (before.Rcode == dns.RcodeNameError) {
					t.Errorf("%s, which was not answered before, is answered over %s with %v", name, by, before)
				}
				if a, by := s.resolve(s.client, to, "h"+fmt.Sprint(existing-1)+".shop.example", dns.TypeA); by != "udp" || len(a.Answer) != 1 {
					t.Errorf("a client that has come over TCP is answered over %s with %v", by, a.Answer)
				}
			}
		})
		if !testutil.Eventually(40*time.Second, func() bool {
			time.Sleep(time.Second) // a zone stays flooded while its queries exceed half of the rate
			passed := s.counted("dns")
			s.send(1, s.frames("udp 203.0.113.9:4000 > 10.0.0.2:53 dns=A,never.shop.example"))
			return testutil.Eventually(time.Second, func() bool { return s.counted("dns") > passed })
		}) {
			t.Error("the zone is flooded though nobody asks any more")
		}
	})
}

// TestRandomSubdomainsAtOnce starts a flood before any name has been answered. The first query of a client must be answered over TCP, and further
// queries over UDP.
func TestRandomSubdomainsAtOnce(t *testing.T) {
	t.Parallel()
	inScene(t, func(s *scene) {
		s.unbound()
		s.apply(targets[0], namesPolicy)
		s.besidePacedFlood(randomNames("shop.example"), namesPause, 10*time.Second, "dns:names", func() {
			for i := range existing {
				a, by := s.resolve(s.client, "10.1.0.2:53", fmt.Sprintf("h%d.shop.example", i), dns.TypeA)
				if len(a.Answer) != 1 || (by == "tcp") != (i == 0) {
					t.Errorf("h%d is answered over %s with %v", i, by, a.Answer)
				}
			}
		})
	})
}

// TestLameZone floods a zone whose server does not answer. unbound answers SERVFAIL after 14 to 17 seconds. From then on the zone counts as flooded,
// and queries for other zones are answered.
func TestLameZone(t *testing.T) {
	t.Parallel()
	inScene(t, func(s *scene) {
		s.unbound()
		s.apply(targets[0], namesPolicy)
		s.besidePacedFlood(randomNames("lame.example"), namesPause, time.Minute, "dns:names", func() {
			for i := range existing {
				a, by := s.resolve(s.client, "10.1.0.2:53", fmt.Sprintf("h%d.shop.example", i), dns.TypeA)
				if len(a.Answer) != 1 || by != "udp" {
					t.Errorf("h%d is answered over %s with %v", i, by, a.Answer)
				}
			}
		})
	})
}

// zoneIsTold checks the status: it must count the answered names, and list the zone as flooded.
func (s *scene) zoneIsTold(zone string, answered int) {
	s.Helper()
	var st *control.Status
	if err := s.server.Do(func() (err error) { st, err = s.Status(s.ctx); return err }); err != nil {
		s.Fatal(err)
	}
	if n := st.Names; n == nil || n.Answered < answered || len(n.Flooded) != 1 || n.Flooded[0].Zone != zone || n.Flooded[0].Left <= 0 {
		s.Errorf("status tells of names %+v, want %d that were answered and %s flooded", n, answered, zone)
	}
}
