// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/test/testutil"
)

// calmFor is the time without a flood after which the program returns to tc.
const calmFor = 3 * time.Second

// floodedHost is a host with a policy whose program moves with a flood. A flood starts and ends on demand. Meanwhile a client sends to an open port.
type floodedHost struct {
	*apiHost
	state    string
	file     string
	end      chan struct{} // closed when the senders must end
	senders  sync.WaitGroup
	on       atomic.Bool
	sent     atomic.Uint64 // packets of the flood
	asked    atomic.Uint64 // packets of the client
	answered *atomic.Int64
	closed   *net.UDPConn
}

// mode waits for a mode of the device.
func (f *floodedHost) mode(when, want string) {
	f.Helper()
	waitFor(f.T, when+": mode "+want, func() bool { return f.now() == want })
}

// now returns the mode of the device.
func (f *floodedHost) now() string {
	f.Helper()
	var s control.Status
	if err := json.Unmarshal([]byte(mustFloodwall(f.T, "status", "--json")), &s); err != nil {
		f.Fatal(err)
	}
	return s.Devices[0].Mode
}

// TestFlooded has floods begin and end while the daemon runs, was killed, or ends. The program must run at tc without a flood and at XDP in a flood. No
// packet of the flood may reach its port, each packet of the client must reach the open port, and each packet must be counted once.
func TestFlooded(t *testing.T) {
	if !inside(t) || features.TCX() != nil {
		return
	}
	f := newFloodedHost(t)
	f.mode("no daemon runs", "native")
	f.start()
	f.mode("the daemon runs", "tc")
	if n := f.urgent(); n != 1 && (n != 0 || mayHurry(t)) {
		t.Errorf("%d threads of the daemon have a real-time priority", n)
	}

	began := time.Now()
	f.on.Store(true)
	waitFor(t, "a program at XDP", func() bool { return xdpOn("fw0") != 0 })
	t.Logf("the program came to XDP %v after the first packet", time.Since(began).Round(time.Millisecond))
	f.mode("a flood", "native")
	mustFloodwall(t, "apply", f.file, "--state", f.state, "--force")
	if mode := f.now(); mode != "native" {
		t.Errorf("an apply in the flood changes the mode to %s", mode)
	}
	f.on.Store(false)
	f.mode("after the flood", "tc")
	mustFloodwall(t, "apply", f.file, "--state", f.state, "--force")
	mustFloodwall(t, "repair", "--state", f.state)
	if mode := f.now(); mode != "tc" {
		t.Errorf("an apply without a flood changes the mode to %s", mode)
	}
	mustFloodwall(t, "temporary", "add", "{name: chargen, proto: udp, port: 19, then: drop}", "--for", "10m", "--state", f.state) // a new generation from the same policy
	moves := strings.Count(f.said.String(), "device fw0 runs in ")
	for range 4 { // the pauses are shorter than the time until the program returns
		f.on.Store(true)
		f.mode("a flood that comes and goes", "native")
		f.on.Store(false)
		time.Sleep(calmFor / 6)
	}
	f.mode("after it", "tc")
	if n := strings.Count(f.said.String(), "device fw0 runs in ") - moves; n != 2 {
		t.Errorf("a flood that comes and goes moves the program %d times:\n%s", n, f.said)
	}

	f.kill() // without a flood
	f.on.Store(true)
	f.start()
	f.mode("the next daemon, in a flood", "native")
	f.kill()
	f.on.Store(false)
	f.start()
	f.mode("the next daemon, after the flood", "tc")
	f.daemon.Process.Signal(syscall.SIGTERM)
	f.daemon.Wait()
	f.mode("the daemon has ended", "native")
	f.check()

	for want, args := range map[string][]string{
		"`xdp: flooded` has no effect on target nftables":                                           {"--target", "nftables"},
		"`xdp: flooded` has no effect, because mode generic was asked for; `--mode auto` ends that": {"--target", "xdp", "--mode", "generic"},
	} {
		if out := mustFloodwall(t, append([]string{"apply", f.file, "--state", f.state, "--force"}, args...)...); !strings.Contains(out, want) {
			t.Errorf("apply %v does not say %q:\n%s", args, want, out)
		}
	}
}

// newFloodedHost applies the policy, and starts the senders.
func newFloodedHost(t *testing.T) *floodedHost {
	t.Helper()
	f := &floodedHost{apiHost: &apiHost{T: t}, state: t.TempDir(), end: make(chan struct{})}
	f.file = filepath.Join(t.TempDir(), "policy.yaml")
	sh(t, "ip link set fw0 address 02:00:00:00:00:02; sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.fw0.rp_filter=0 net.ipv6.conf.fw0.disable_ipv6=1 net.ipv6.conf.fw1.disable_ipv6=1")
	writeFile(t, f.file, "devices: [fw0]\ndefault: drop\nxdp: {when: flooded, start: 100/s, calm: "+calmFor.String()+"}\n"+
		"services: [{name: open, port: udp/5000}]\n")
	f.answered = arrivals(t, "192.0.2.1:5000")
	closed, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed.Close() })
	f.closed = closed
	mustFloodwall(t, "apply", f.file, "--state", f.state, "--force")
	f.send("udp 192.0.2.7:1 > 192.0.2.1:5000", &f.asked, time.Millisecond, func() bool { return true })
	f.send("udp 192.0.2.7:1 > 192.0.2.1:9", &f.sent, 20*time.Microsecond, f.on.Load)
	return f
}

// send sends a packet again and again, with a pause in between, while on returns true. It counts the packets.
func (f *floodedHost) send(packet string, n *atomic.Uint64, pause time.Duration, on func() bool) {
	f.senders.Go(func() {
		err := testutil.SendFor("fw1", []string{packet}, func(int) bool {
			for {
				select {
				case <-f.end:
					return false
				case <-time.After(pause):
				}
				if on() {
					n.Add(1)
					return true
				}
			}
		})
		if err != nil {
			f.Error(err)
		}
	})
}

// start starts the daemon.
func (f *floodedHost) start() { f.apiHost = startDaemon(f.T, "--state", f.state) }

// urgent returns the number of the daemon's threads with a real-time priority.
func (f *floodedHost) urgent() (n int) {
	f.Helper()
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(f.daemon.Process.Pid) + "/task/*/stat")
	if err != nil || tasks == nil {
		f.Fatalf("threads of the daemon: %v (error %v)", tasks, err)
	}
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		const policy, firstBehindName = 41, 3 // the numbers of fields in proc_pid_stat(5)
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if fields[policy-firstBehindName] == "2" { // SCHED_RR
			n++
		}
	}
	return n
}

// mayHurry reports whether a thread may have a real-time priority here. A container, or a control group without a share of the real-time CPU, forbids it.
func mayHurry(t *testing.T) bool {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, with its priority, ends with the goroutine
		done <- unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 51}, 0)
	}()
	err := <-done
	if err != nil {
		t.Logf("no real-time priority here: %v", err)
	}
	return err == nil
}

// check ends the senders, and compares the packets that were sent with those that arrived and were counted.
func (f *floodedHost) check() {
	f.Helper()
	close(f.end)
	f.senders.Wait()
	if testutil.Arrives(f.T, f.closed, 100*time.Millisecond) {
		f.Error("a packet of the flood reached the closed port")
	}
	fw1, err := netlink.LinkByName("fw1")
	if err != nil {
		f.Fatal(err)
	}
	lost := fw1.Attrs().Statistics.TxDropped
	asked, sent := f.asked.Load(), f.sent.Load()
	if !testutil.Eventually(time.Minute, func() bool { return uint64(f.answered.Load())+fullSockets(f.T)+lost >= asked }) {
		f.Errorf("%d of %d packets of the client arrived, %d found a full socket, and %d were lost on the way", f.answered.Load(), asked, fullSockets(f.T), lost)
	}
	var s control.Status
	if err := json.Unmarshal([]byte(mustFloodwall(f.T, "status", "--json")), &s); err != nil {
		f.Fatal(err)
	}
	passed := s.Rules[slices.IndexFunc(s.Rules, func(r control.RuleStatus) bool { return r.Name == "open" })].Packets
	f.Logf("%d packets of the flood, %d dropped; %d of the client, %d passed; %d lost", sent, s.Default.Packets, asked, passed, lost)
	for _, n := range [][2]uint64{{sent, s.Default.Packets}, {asked, passed}} {
		if n[1]+lost < n[0] || n[1] > n[0] {
			f.Errorf("%d packets were sent, and %d counted", n[0], n[1])
		}
	}
}

// fullSockets returns the number of datagrams that found no space in their socket.
func fullSockets(t *testing.T) (n uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if words[0] != "Udp:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		n, err = strconv.ParseUint(words[slices.Index(names, "RcvbufErrors")], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}
