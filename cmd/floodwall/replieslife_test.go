// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// innerPolicy passes replies, and datagrams to udp/9.
const innerPolicy = `devices: [fw0]
default: drop
sets: {listed: {url: "URL", every: 12h}}
rules: [{name: listed, from: $listed, then: drop}]
services: [{name: mark, port: udp/9}]
`

// innerSite is a host with flows that the host has opened. After that, only the other ends of the flows send.
type innerSite struct {
	*testing.T
	client *testutil.Elsewhere
	target string
	policy string
	list   atomic.Value // string
	flows  []innerFlow
	number int // number of the last text that was sent
}

// innerFlow is a flow that the host has opened.
type innerFlow struct {
	name string
	own  net.Conn
	send func(text string) error // sends a text from the other end
	lost bool                    // packets may be lost, for example while a device returns
}

// ownPort is the port of a UDP socket of the host that accepts datagrams from any sender.
const ownPort = 40000

// newInnerSite applies the policy. Then the host opens a TCP connection and a UDP flow.
func newInnerSite(t *testing.T, target string) *innerSite {
	s := &innerSite{T: t, client: testutil.NewElsewhere(t), target: target, policy: filepath.Join(t.TempDir(), "policy.yaml")}
	s.list.Store("9.9.9.0/24\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, s.list.Load().(string)) }))
	t.Cleanup(server.Close)
	s.cable()
	writeFile(t, s.policy, strings.Replace(innerPolicy, "URL", server.URL, 1))
	s.apply(s.policy)
	s.connection("7001")
	s.datagrams()
	return s
}

func (s *innerSite) apply(policy string, more ...string) {
	s.Helper()
	mustFloodwall(s.T, append([]string{"apply", "--force", "--target", s.target, policy}, more...)...)
}

// cable moves the other end of the host's device to the client.
func (s *innerSite) cable() {
	s.Helper()
	s.client.Take(s.T, "fw1")
	s.client.Do(func() { script(s.T, "ip link set lo up; ip link set fw1 up; ip addr add 192.0.2.2/24 dev fw1") })
	testutil.WaitUp(s.T, "fw0")
}

// connection opens a TCP connection from the host.
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
	own.(*net.TCPConn).SetKeepAlive(false) // without keep-alive no packet leaves that would open the flow
	s.Cleanup(func() { own.Close(); peer.Close() })
	s.flows = append(s.flows, innerFlow{"TCP to port " + port, own, func(text string) error { _, err := io.WriteString(peer, text); return err }, false})
}

// datagrams opens a UDP flow from the host's socket to the client.
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
	s.flows = append(s.flows, innerFlow{"UDP", own.(*net.UDPConn), func(text string) error { return toOwnPort(peer, text) }, true})
}

// bound returns a UDP socket of the client.
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

// goOn checks that packets from the other end of each flow arrive, and that no other packets do.
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
		if !sent || f.lost {
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

// closed checks that the default drops and counts unsolicited datagrams.
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

// dropped returns the number of packets that the default has dropped.
func (s *innerSite) dropped() uint64 {
	status, err := control.Instance{Dir: datapath.DefaultDir}.Status(s.Context())
	if err != nil {
		s.Errorf("status: %v", err)
		return 0
	}
	return status.Default.Packets
}

// restored deletes the device, makes it again, and waits until it is filtered.
func (s *innerSite) restored(repair func()) {
	s.Helper()
	script(s.T, "ip link del fw0\n"+newDevice+"ip link set fw0 up")
	s.cable()
	repair()
	s.whole()
}

// whole waits until status reports no problem.
func (s *innerSite) whole() {
	s.Helper()
	if out, err := "", error(nil); !testutil.Eventually(filteredAgain, func() bool { out, err = floodwall("status"); return err == nil }) {
		s.Errorf("status: %v\n%s", err, out)
	}
}

// TestRepliesOutlive checks that flows of the host survive events: another apply, exchanges of a list and of temporary rules, the end of a trial, the
// end of a daemon, the loss and return of a device, and a flush of netfilter. After each event, no unsolicited packet may pass.
func TestRepliesOutlive(t *testing.T) {
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		t.Run(target, func(t *testing.T) {
			if inside(t) {
				outlive(newInnerSite(t, target))
			}
		})
	}
}

func outlive(s *innerSite) {
	t := s.T
	var daemon *apiHost
	for _, event := range []struct {
		name string
		does func()
	}{
		{"nothing", func() {}},
		{"another apply", func() { s.apply(s.policy) }},
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
			s.apply(other, "--confirm", "2s")
			s.connection("7004")
			waitFor(t, "the end of the trial", func() bool {
				out, err := floodwall("status")
				return err == nil && strings.Contains(out, s.policy) && !strings.Contains(out, "on trial")
			})
		}},
		{"the device returns", func() { s.restored(func() {}) }},
		{"the daemon is stopped", func() { daemon.daemon.Process.Signal(syscall.SIGTERM); daemon.daemon.Wait() }},
		{"another is killed", func() { startDaemon(t).kill() }},
		{"what is in netfilter is flushed", func() {
			if s.target == "xdp" {
				return
			}
			script(t, "nft flush ruleset")
			s.connection("7008")
			mustFloodwall(t, "repair")
			s.whole()
		}},
		{"the device returns without it", func() { s.restored(func() { mustFloodwall(t, "repair") }) }},
	} {
		event.does()
		s.goOn("after this: " + event.name)
		s.closed("after this: " + event.name)
	}
}

// TestRepliesUpgraded marks the table of reply flows as having the format of another version. status must report that format. The next apply must not
// reuse the table. It must record the flows of open sockets again.
func TestRepliesUpgraded(t *testing.T) {
	if !inside(t) {
		return
	}
	s := newInnerSite(t, "xdp")
	otherFormat(t, 1)
	if out, err := floodwall("status"); err == nil || !strings.Contains(out, "its "+image.ReplyFlows+" has format 9") {
		t.Errorf("status: %v\n%s", err, out)
	}
	s.apply(s.policy)
	s.flows = s.flows[:1] // no socket shows the owner of the other flow
	s.goOn("after the upgrade")
	s.closed("after the upgrade")
}

// otherFormat marks a generation as loaded by a version with another format of reply flows.
func otherFormat(t *testing.T, generation int) {
	t.Helper()
	formats := maps.Clone(image.Formats())
	formats[image.ReplyFlows], formats[image.ReplyFilter] = 9, 9
	text, err := json.Marshal(formats)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := datapath.OpenState(datapath.DefaultDir, false)
	if err == nil {
		err = opened.SetNote(generation, datapath.Note("formats"), text)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNoRepliesUpgraded uses a policy without reply flows, marked as loaded by another version. The format of that version's table of reply flows
// must not matter.
func TestNoRepliesUpgraded(t *testing.T) {
	if !inside(t) {
		return
	}
	s := newInnerSite(t, "xdp")
	other := filepath.Join(t.TempDir(), "other.yaml")
	writeFile(t, other, "devices: [fw0]\ndefault: pass\n")
	s.apply(other)
	otherFormat(t, 2)
	mustFloodwall(t, "status")
	mustFloodwall(t, "temporary", "add", "{name: now, proto: udp, port: 9, then: drop}", "--for", "10m")
	s.apply(other)
}

// detached detaches the program for packets that leave fw0, with bpftool.
func (s *innerSite) detached() {
	s.Helper()
	dev, err := net.InterfaceByName("fw0")
	if err != nil {
		s.Fatal(err)
	}
	there, err := link.QueryPrograms(link.QueryOptions{Target: dev.Index, Attach: ebpf.AttachTCXEgress})
	if err != nil || len(there.Programs) != 1 {
		s.Fatalf("fw0 has %d programs for what leaves, %v", len(there.Programs), err)
	}
	id, _ := there.Programs[0].LinkID()
	script(s.T, fmt.Sprintf("bpftool link detach id %d", id))
}

// TestRepliesWithoutEgress detaches the program that records leaving packets, as another tool might do. Recorded flows must continue, and no other
// flow may be open. status and doctor must report the missing program. After a repair, flows that started in the meantime must also work. The daemon
// must repair this by itself.
func TestRepliesWithoutEgress(t *testing.T) {
	if !inside(t) {
		return
	}
	testutil.RequireTool(t, "bpftool")
	s := newInnerSite(t, "xdp")
	s.detached()
	(&watch{T: t}).open("what device fw0 sends is not filtered")
	s.goOn("without the program")
	s.closed("without the program")

	peer := s.bound("192.0.2.2:7005")
	own, err := net.Dial("udp4", "192.0.2.2:7005")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	dropped, answered := s.dropped(), make([]byte, 10)
	peer.SetReadDeadline(time.Now().Add(filteredAgain))
	io.WriteString(own, "question")
	if _, _, err := peer.ReadFrom(answered); err != nil {
		t.Fatal(err)
	}
	answer := func(text string) error { _, err := peer.WriteTo([]byte(text), own.LocalAddr()); return err }
	if err := answer("news"); err != nil {
		t.Fatal(err)
	}
	if !testutil.Eventually(filteredAgain, func() bool { return s.dropped() > dropped }) {
		t.Error("an answer to what was not noted is not dropped")
	}
	opened := make(chan bool)
	dropped = s.dropped()
	go func() { defer close(opened); s.connection("7006") }()
	if !testutil.Eventually(filteredAgain, func() bool { return s.dropped() > dropped }) {
		t.Error("no SYN-ACK is dropped")
	}

	if out := mustFloodwall(t, "repair"); !strings.Contains(out, "what device fw0 sends is filtered again") {
		t.Errorf("repair says %s", out)
	}
	<-opened
	s.flows = append(s.flows, innerFlow{"UDP from a connected socket", own, answer, true})
	s.whole()
	s.goOn("after the repair")
	s.closed("after the repair")

	startDaemon(t)
	s.detached()
	s.whole()
	s.connection("7007")
	s.goOn("after the daemon has repaired it")
	s.closed("after the daemon has repaired it")
}
