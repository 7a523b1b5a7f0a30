package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// innerPolicy lets replies in, and nothing else.
const innerPolicy = `devices: [fw0]
default: drop
sets: {listed: {url: "URL", every: 12h}}
rules: [{name: listed, from: $listed, then: drop}]
services: [{name: mark, port: udp/9}]
`

// innerSite is a host with flows that it began, of which only the other end sends.
type innerSite struct {
	*testing.T
	client *testutil.Elsewhere
	policy string
	list   atomic.Value // string
	flows  []innerFlow
	number int // of the last text that was sent
}

// innerFlow is such a flow.
type innerFlow struct {
	name string
	own  net.Conn
	send func(text string) error // by the other end
}

// ownPort is the port of the host's socket of UDP that takes datagrams of anybody.
const ownPort = 40000

// newInnerSite has the policy applied, and then begins a flow of TCP and one of UDP.
func newInnerSite(t *testing.T) *innerSite {
	s := &innerSite{T: t, client: testutil.NewElsewhere(t), policy: filepath.Join(t.TempDir(), "policy.yaml")}
	s.list.Store("9.9.9.0/24\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, s.list.Load().(string)) }))
	t.Cleanup(server.Close)
	s.cable()
	writeFile(t, s.policy, strings.Replace(innerPolicy, "URL", server.URL, 1))
	mustFloodwall(t, "apply", "--force", "--target", "xdp", s.policy)
	s.connection("7001")
	s.datagrams()
	return s
}

// cable gives the client the other end of the host's device.
func (s *innerSite) cable() {
	s.Helper()
	s.client.Take(s.T, "fw1")
	s.client.Do(func() { script(s.T, "ip link set lo up; ip link set fw1 up; ip addr add 192.0.2.2/24 dev fw1") })
}

// connection has the host open one of TCP.
func (s *innerSite) connection(port string) {
	s.Helper()
	var l net.Listener
	s.client.Do(func() { l = listen(s.T, "192.0.2.2:"+port) })
	own, err := dialFrom("", "tcp", "192.0.2.2:"+port, filteredAgain)
	if err != nil {
		s.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { own.Close(); peer.Close() })
	s.flows = append(s.flows, innerFlow{"TCP to port " + port, own, func(text string) error { _, err := io.WriteString(peer, text); return err }})
}

// datagrams has the host's socket of UDP ask the client.
func (s *innerSite) datagrams() {
	s.Helper()
	own, err := net.ListenPacket("udp4", fmt.Sprintf(":%d", ownPort))
	if err != nil {
		s.Fatal(err)
	}
	peer := s.bound("192.0.2.2:7002")
	s.Cleanup(func() { own.Close() })
	if _, err := own.WriteTo([]byte("question"), peer.LocalAddr()); err != nil {
		s.Fatal(err)
	}
	peer.SetReadDeadline(time.Now().Add(filteredAgain))
	if _, _, err := peer.ReadFrom(make([]byte, 10)); err != nil {
		s.Fatal(err)
	}
	s.flows = append(s.flows, innerFlow{"UDP", own.(*net.UDPConn), func(text string) error { return toOwnPort(peer, text) }})
}

// bound is a socket of UDP of the client.
func (s *innerSite) bound(address string) (c net.PacketConn) {
	s.Helper()
	var err error
	s.client.Do(func() { c, err = net.ListenPacket("udp4", address) })
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	return c
}

func toOwnPort(from net.PacketConn, text string) error {
	_, err := from.WriteTo([]byte(text), &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: ownPort})
	return err
}

// goOn wants what the other ends send to arrive, and nothing else.
func (s *innerSite) goOn(when string) {
	s.Helper()
	for _, f := range s.flows {
		if err := s.goesOn(f); err != nil {
			s.Fatalf("%s: %s: %v", when, f.name, err)
		}
	}
}

func (s *innerSite) goesOn(f innerFlow) (err error) {
	s.number++
	text := fmt.Sprintf("news %08d", s.number)
	sent, buffer := false, make([]byte, len(text))
	if !testutil.Eventually(filteredAgain, func() bool {
		if !sent || f.name == "UDP" { // a datagram may be lost while a device returns
			err = f.send(text)
			sent = err == nil
		}
		if !sent {
			return false
		}
		f.own.SetReadDeadline(time.Now().Add(time.Second))
		var n int
		for n, err = f.own.Read(buffer); err == nil && string(buffer[:n]) != text; n, err = f.own.Read(buffer) {
			if !strings.HasPrefix(string(buffer[:n]), "news") {
				s.Fatalf("%s: %q arrived", f.name, buffer[:n])
			}
		}
		return err == nil
	}) {
		return fmt.Errorf("nothing arrives: %w", err)
	}
	return nil
}

// closed wants datagrams to be dropped that answer nothing: by the default, which counts them.
func (s *innerSite) closed(when string) {
	s.Helper()
	stranger := s.bound("192.0.2.2:7003")
	defer stranger.Close()
	const sent = 20
	dropped := s.dropped()
	for range sent {
		if err := toOwnPort(stranger, "forged"); err != nil {
			s.Fatalf("%s: %v", when, err)
		}
	}
	if !testutil.Eventually(filteredAgain, func() bool { return s.dropped() >= dropped+sent }) {
		s.Fatalf("%s: of %d datagrams that answer nothing the default drops %d", when, sent, s.dropped()-dropped)
	}
}

// dropped is how many packets the default has dropped.
func (s *innerSite) dropped() uint64 {
	status, err := control.Instance{Dir: datapath.DefaultDir}.Status(s.Context())
	if err != nil {
		s.Errorf("status: %v", err)
		return 0
	}
	return status.Default.Packets
}

// restored makes the device again, and waits until it is filtered.
func (s *innerSite) restored(repair func()) {
	s.Helper()
	script(s.T, "ip link del fw0\n"+newDevice+"ip link set fw0 up")
	s.cable()
	repair()
	s.whole()
}

// whole waits until status says that all is well.
func (s *innerSite) whole() {
	s.Helper()
	if out, err := "", error(nil); !testutil.Eventually(filteredAgain, func() bool { out, err = floodwall("status"); return err == nil }) {
		s.Errorf("status: %v\n%s", err, out)
	}
}

// TestRepliesOutlive has flows that the host began outlive another apply, exchanges of a list and of temporary rules, the end of a trial, a
// daemon that ends, and a device that goes and returns. After each, nothing passes that answers nothing.
func TestRepliesOutlive(t *testing.T) {
	if !inside(t) {
		return
	}
	s := newInnerSite(t)
	var daemon *apiHost
	for _, event := range []struct {
		name string
		does func()
	}{
		{"nothing", func() {}},
		{"another apply", func() { mustFloodwall(t, "apply", "--force", "--target", "xdp", s.policy) }},
		{"a list is exchanged", func() {
			s.list.Store("9.9.9.0/24\n9.9.11.0/24\n")
			if out := mustFloodwall(t, "feeds", "refresh"); !strings.Contains(out, "changed") {
				t.Errorf("feeds refresh says %s", out)
			}
		}},
		{"a temporary rule", func() {
			mustFloodwall(t, "temporary", "add", "{name: passing, proto: udp, port: 9, then: drop}", "--for", "10m")
		}},
		{"none any more", func() { mustFloodwall(t, "temporary", "remove", "passing") }},
		{"a daemon begins", func() { daemon = startDaemon(t) }},
		{"a trial ends", func() {
			other := filepath.Join(t.TempDir(), "other.yaml")
			writeFile(t, other, "devices: [fw0]\ndefault: pass\n")
			mustFloodwall(t, "apply", "--force", "--target", "xdp", "--confirm", "2s", other)
			s.connection("7004")
			waitFor(t, "the end of the trial", func() bool {
				out, err := floodwall("status")
				return err == nil && strings.Contains(out, s.policy) && !strings.Contains(out, "on trial")
			})
		}},
		{"the device returns", func() { s.restored(func() {}) }},
		{"the daemon is stopped", func() { daemon.daemon.Process.Signal(syscall.SIGTERM); daemon.daemon.Wait() }},
		{"another is killed", func() { startDaemon(t).kill() }},
		{"the device returns without it", func() { s.restored(func() { mustFloodwall(t, "repair") }) }},
	} {
		event.does()
		s.goOn("after this: " + event.name)
		s.closed("after this: " + event.name)
	}
}

// TestRepliesUpgraded has a table that another version has written in another way. status says so. An apply takes nothing of it over, and notes
// the connections of sockets anew.
func TestRepliesUpgraded(t *testing.T) {
	if !inside(t) {
		return
	}
	s := newInnerSite(t)
	opened, err := datapath.OpenState(datapath.DefaultDir, false)
	if err == nil {
		err = opened.SetNote(1, datapath.Note("formats"), fmt.Appendf(nil, `{%q: 9}`, image.ReplyFlows))
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := floodwall("status"); err == nil || !strings.Contains(out, "its reply_flows has format 9") {
		t.Errorf("status: %v\n%s", err, out)
	}
	mustFloodwall(t, "apply", "--force", "--target", "xdp", s.policy)
	s.flows = s.flows[:1] // no socket says of whom the other flow is
	s.goOn("after the upgrade")
	s.closed("after the upgrade")
}
