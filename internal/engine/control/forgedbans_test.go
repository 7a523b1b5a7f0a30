// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/test/testutil"
)

// proving has a limit on packets that anybody can forge, and a limit on a TCP service.
const proving = `
checks: off
default: pass
sets:
  bans: {dynamic: true, max: 100}
rules:
  - {name: banned, from: $bans, then: drop}
  - {name: flood, proto: udp, port: 9, over: {rate: 5/s, per: from, burst: 5, ban: 10m}, then: drop}
  - {name: pushy, port: tcp/7, over: {rate: 5/s, per: from, burst: 20, ban: 10m}, then: drop}
`

// TestForgedSourcesAreNotBanned floods from forged sources, some of which have an open connection. No source may be banned for forged packets. A
// client that exceeds a limit with its own connection must be banned.
func TestForgedSourcesAreNotBanned(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	away := h.distant()
	var failed error
	h.swallow("192.0.2.1:7")
	w := h.watch()
	h.apply(proving)
	w.wantEvent("banning who exceeds limits")

	dial := func(from string) (c net.Conn) {
		away.Do(func() {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: slow}
			c, failed = d.Dial("tcp", "192.0.2.1:7")
		})
		if failed != nil {
			t.Fatal(failed)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	conn := dial("203.0.113.8")
	innocent := conn.LocalAddr().(*net.TCPAddr).Port
	seq, ack := numbers(t, conn)
	const far = 1 << 30 // outside of each TCP window
	forged := []string{
		"udp 198.51.100.9:5 > 192.0.2.1:9", "tcp 198.51.100.10:5 > 192.0.2.1:7 S", "tcp 198.51.100.11:5 > 192.0.2.1:7 A",
		fmt.Sprintf("tcp 203.0.113.8:%d > 192.0.2.1:7 A seq=1 ack=1", innocent),
		fmt.Sprintf("tcp 203.0.113.8:%d > 192.0.2.1:7 S", innocent),
		fmt.Sprintf("tcp 203.0.113.8:%d > 192.0.2.1:7 A seq=%d ack=%d", innocent, seq, ack+far), // an attacker who tries all numbers may guess one of the two
		fmt.Sprintf("tcp 203.0.113.8:%d > 192.0.2.1:7 A seq=%d ack=%d", innocent, seq, ack-far),
		fmt.Sprintf("tcp 203.0.113.8:%d > 192.0.2.1:7 A seq=%d ack=%d", innocent, seq+far, ack),
	}
	for i := range 20 {
		forged = append(forged, fmt.Sprintf("udp 100.64.7.%d:5 > 192.0.2.1:9", i))
	}
	away.Do(func() {
		failed = testutil.SendFor("fw1", forged, func(sent int) bool { time.Sleep(2 * time.Millisecond); return sent < 300 })
	})
	if failed != nil {
		t.Fatal(failed)
	}
	pushy := dial("203.0.113.7")
	go func() {
		for {
			if _, err := pushy.Write([]byte{'x'}); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	testutil.Eventually(2*slow, func() bool { return h.isBlocked("203.0.113.7/32") })
	h.wantBlocked("after forged packets, and a flood over a connection", []string{"203.0.113.7/32 bans 0h above the limit of rule pushy"})
	w.wantNoError()
}

// distant creates hosts behind a gateway, in their own namespace.
func (h *host) distant() *testutil.Elsewhere {
	h.Helper()
	away := testutil.NewElsewhere(h.T)
	away.Take(h.T, "fw1")
	var failed error
	away.Do(func() {
		for _, line := range []string{"addr add 192.0.2.2/24 dev fw1", "addr add 203.0.113.7/32 dev fw1", "addr add 203.0.113.8/32 dev fw1",
			"link set fw1 up", "link set lo up"} {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				failed = fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
		}
	})
	if failed != nil {
		h.Fatal(failed)
	}
	testutil.WaitUp(h.T, "fw0")
	h.ip("route add default via 192.0.2.2")
	return away
}

// TestTalkingVictimIsNotBanned forges SYNs of a client that sends a little over its own connection. The forged SYNs use up a limit, so the client's
// segments exceed it. They must not ban the client. Afterwards all data that the client sent must arrive, and a new connection must work.
func TestTalkingVictimIsNotBanned(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	away := h.distant()
	l, err := net.Listen("tcp", "192.0.2.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	testutil.Serve(t, l, func(c net.Conn) { io.Copy(c, c) })
	w := h.watch()
	h.apply(`
checks: off
sets:
  bans: {dynamic: true, max: 100}
rules:
  - {name: banned, from: $bans, then: drop}
  - {name: busy, port: tcp/8080, over: {rate: 200/s, per: from, ban: 10m}, then: drop}
`)
	w.wantEvent("banning who exceeds limits")
	var c net.Conn
	dial := func() {
		away.Do(func() {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("203.0.113.8")}, Timeout: slow}
			c, err = d.Dial("tcp", "192.0.2.1:8080")
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	dial()
	var forged []string
	for i := range 40 {
		forged = append(forged, fmt.Sprintf("tcp 203.0.113.8:%d > 192.0.2.1:8080 S seq=%d", 2000+977*i, 31*i))
	}
	flooded := make(chan error, 1)
	over, messages := make(chan struct{}), 0
	go func() {
		var err error
		away.Do(func() {
			err = testutil.SendFor("fw1", forged, func(int) bool {
				time.Sleep(2 * time.Millisecond)
				select {
				case <-over:
					return false
				default:
					return true
				}
			})
		})
		flooded <- err
	}()
	for began := time.Now(); time.Since(began) < 8*time.Second && err == nil; messages++ {
		time.Sleep(200 * time.Millisecond)
		_, err = c.Write([]byte("message\n"))
	}
	close(over)
	if err := errors.Join(err, <-flooded); err != nil {
		t.Fatal(err)
	}
	if h.wantBlocked("after a flood of forged SYNs beside a client", nil); t.Failed() {
		return
	}
	echo := func(n int) {
		c.SetDeadline(time.Now().Add(slow))
		if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
			t.Errorf("reading the answers: %v", err)
		}
	}
	echo(messages * len("message\n"))
	dial()
	if _, err := c.Write([]byte{'x'}); err != nil {
		t.Error(err)
	}
	echo(1)
	if h.counts()["busy"] == 0 {
		t.Error("nothing exceeded the limit")
	}
	w.wantNoError()
}

// numbers returns the sequence number and the acknowledgment number of a connection's next segment.
func numbers(t *testing.T, c net.Conn) (seq, ack uint32) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(fd, queue int) uint32 {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR_QUEUE, queue))
		n, failed := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
		err = errors.Join(err, failed)
		return uint32(n)
	}
	control := raw.Control(func(fd uintptr) {
		const receive, send = 1, 2 // enum tcp_queue of include/net/tcp.h
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_ON)
		seq, ack = ask(int(fd), send), ask(int(fd), receive)
		err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF_NO_WP))
	})
	if err := errors.Join(err, control); err != nil {
		t.Fatal(err)
	}
	return seq, ack
}

// swallow accepts connections to an address and reads all that they send, until the end of the test.
func (h *host) swallow(address string) {
	h.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		h.Fatal(err)
	}
	testutil.Serve(h.T, l, func(c net.Conn) { io.Copy(io.Discard, c) })
}

// TestLifelinesAreSpared lets forgeable packets lead to bans. Hosts on which this host depends must still not be banned. This includes a host on
// which it starts to depend while the daemon runs.
func TestLifelinesAreSpared(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	before, resolv := facts.System, filepath.Join(t.TempDir(), "resolv.conf")
	t.Cleanup(func() { facts.System = before })
	facts.System = facts.Files{Resolvers: []string{resolv}}
	if err := os.WriteFile(resolv, []byte("search example\nnameserver 198.51.100.53\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.ip("route add 203.0.113.0/24 via 192.0.2.9")
	w := h.watch()
	operator := facts.Session{Client: netip.MustParseAddrPort("198.51.100.200:5000"), Server: netip.MustParseAddrPort("192.0.2.1:22")}
	if _, err := h.try(banning, control.ApplyOptions{Sessions: []facts.Session{operator}}); err != nil {
		t.Fatal(err)
	}
	w.wantEvent("banning who exceeds limits")
	h.wantBan("198.51.100.99/32", 9, "192.0.2.9", "192.0.2.77", "198.51.100.53", "198.51.100.200", "198.51.100.99", "2001:db8::77")
	h.wantBlocked("beside forged floods from what the host depends on", []string{"198.51.100.99/32 bans 0h above the limit of rule flood"})
	w.wantEvent("not banned: ")

	h.ip("route add 198.18.0.0/15 via 198.51.100.99 dev fw0 onlink")
	if !testutil.Eventually(slow, func() bool { return !h.isBlocked("198.51.100.99/32") }) {
		t.Fatal("the new gateway stays banned")
	}
	w.wantEvent("1 automatic bans lifted")
	w.wantNoError()
}

// TestBlockBesideBans fills a set with bans of forged sources, while several callers block by hand. No block by hand may be refused or lost, and the
// log must have one line a second.
func TestBlockBesideBans(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	const most, callers, each = 400, 4, 90
	w := h.watch()
	h.apply(strings.ReplaceAll(banning, "max: 100", fmt.Sprintf("max: %d", most)))
	w.wantEvent("banning who exceeds limits")
	var sources []string
	for i := range 1000 {
		sources = append(sources, h.from(fmt.Sprintf("100.%d.%d.7", 64+i/250, i%250), 9))
	}
	start := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	flooded := make(chan error, 1)
	go func() {
		flooded <- testutil.SendFor("fw1", sources, func(int) bool {
			time.Sleep(10 * time.Millisecond) // about 50 packets a second from each source, ten times the limit
			return ctx.Err() == nil
		})
	}()
	space := func() bool { n := len(h.blocked()); return n >= most-most/4 }
	testutil.Eventually(2*slow, space)
	refused := make(chan error, callers)
	for c := range callers {
		go func() {
			var err error
			for i := 0; i < each && err == nil; i += 10 {
				var bans []ban.Ban
				for j := range 10 {
					bans = append(bans, ban.Ban{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(c), byte(i + j)}), 32)})
				}
				_, err = h.Block(t.Context(), "", bans)
			}
			refused <- err
		}()
	}
	for range callers {
		if err := <-refused; err != nil {
			t.Errorf("blocking beside a flood: %v", err)
		}
	}
	cancel()
	if err := <-flooded; err != nil {
		t.Error(err)
	}
	w.stop()
	manual, automatic := 0, 0
	list, err := h.Blocked(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		if b.Origin == ban.Manual {
			manual++
		} else if automatic++; b.Rule != "flood" {
			t.Errorf("%+v", b)
		}
	}
	t.Logf("%d entries by hand, %d automatic", manual, automatic)
	if manual != callers*each || automatic == 0 || automatic+manual > most {
		t.Errorf("%d entries by hand, want %d, beside %d automatic in a set for %d", manual, callers*each, automatic, most)
	}
	if lines, seconds := len(w.events), int(time.Since(start).Seconds()); lines > seconds+5 {
		t.Errorf("%d lines in %d seconds", lines, seconds)
	}
}
