// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// filteredAgain is the longest time until the policy is in force again, on a busy machine. With idle CPUs it takes a tenth of a second after most
// events. It takes a second after events that the kernel does not report.
const filteredAgain = 30 * time.Second

// quiet is the time without received packets after which a test regards the policy as in force.
const quiet = 250 * time.Millisecond

// watch has a sender, and a socket that must not receive its packets.
type watch struct {
	*testing.T
	policy   string
	log      string // the output of the daemon
	received atomic.Uint64
	last     atomic.Int64 // when the last packet was received, in nanoseconds since began
	sent     atomic.Uint64
	began    time.Time
}

// newWatch starts the sender and the socket. It does not apply the policy.
func newWatch(t *testing.T) *watch {
	t.Helper()
	dir := t.TempDir()
	w := &watch{T: t, policy: filepath.Join(dir, "policy.yaml"), log: filepath.Join(dir, "log"), began: time.Now()}
	if err := os.WriteFile(w.policy, []byte(lifePolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"all", "default"} {
		os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", []byte("0"), 0)
	}
	testutil.Veth(t, "fx0", "fx1")
	socket, err := net.ListenPacket("udp4", "0.0.0.0:9")
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	end := make(chan struct{})
	both.Go(func() {
		buffer := make([]byte, 2048)
		for {
			if _, _, err := socket.ReadFrom(buffer); err != nil {
				return
			}
			w.last.Store(int64(time.Since(w.began)))
			w.received.Add(1)
		}
	})
	both.Go(func() { w.send(end) })
	t.Cleanup(func() {
		close(end)
		socket.Close()
		both.Wait()
	})
	return w
}

// send sends about a thousand packets a second at fw1, as long as that device exists.
func (w *watch) send(end <-chan struct{}) {
	spec, err := packet.Parse("udp 198.51.100.1:5 > 192.0.2.1:9")
	if err != nil {
		w.Error(err)
		return
	}
	frame := spec.Frame()
	copy(frame, "\xff\xff\xff\xff\xff\xff") // the device has another address each time that it returns
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		w.Error(err)
		return
	}
	defer unix.Close(socket)
	to := unix.SockaddrLinklayer{}
	for {
		select {
		case <-end:
			return
		case <-time.After(time.Millisecond):
		}
		if to.Ifindex == 0 {
			if dev, err := net.InterfaceByName("fw1"); err == nil {
				to.Ifindex = dev.Index
			}
			continue
		}
		switch err := unix.Sendto(socket, frame, 0, &to); err {
		case nil:
			w.sent.Add(1)
		case unix.ENXIO, unix.ENODEV: // the device has been removed, and perhaps replaced
			to.Ifindex = 0
		}
	}
}

// arrives waits until the sender's packets arrive, as they must without a policy. If they never arrived, a later test that none arrives would prove
// nothing.
func (w *watch) arrives() {
	w.Helper()
	before := w.received.Load()
	w.until("the packets do not come in without a policy", func() bool { return w.received.Load() > before })
}

// until waits until a condition holds. On failure it prints the text otherwise.
func (w *watch) until(otherwise string, is func() bool) {
	w.Helper()
	if !testutil.Eventually(filteredAgain, is) {
		out, err := floodwall("status")
		said, _ := os.ReadFile(w.log)
		w.Fatalf("%s, after %v; status: %v\n%s\nthe daemon says:\n%s", otherwise, filteredAgain, err, out, said)
	}
}

// event changes the host and waits until the policy is in force again. It returns the number of packets that arrived in this time. The sender must
// have sent packets.
func (w *watch) event(name string, do func()) (passed uint64) {
	w.Helper()
	before, begin := w.received.Load(), time.Since(w.began)
	do()
	w.filtered() // first, as it starts no process
	w.until(name+": status does not say that all is well", func() bool {
		_, err := floodwall("status")
		return err == nil
	})
	w.filtered()
	passed = w.received.Load() - before
	took := time.Duration(0)
	if passed > 0 {
		took = time.Duration(w.last.Load()) - begin
	}
	w.Logf("%-46s %4d packets passed, the last after %v", name, passed, took.Round(time.Millisecond))
	return passed
}

// filtered waits until packets are sent but none arrives.
func (w *watch) filtered() {
	w.Helper()
	w.until("packets come in that the policy drops", func() bool {
		received, sent := w.received.Load(), w.sent.Load()
		time.Sleep(quiet)
		return w.received.Load() == received && w.sent.Load() > sent+5
	})
}

// sh runs a shell script. It fails the test if a line fails.
func (w *watch) sh(lines string) {
	w.Helper()
	if out, err := exec.Command("sh", "-e", "-c", lines).CombinedOutput(); err != nil {
		w.Fatalf("%s: %v\n%s", lines, err, out)
	}
}

// open checks that status and doctor fail, and that their output contains a text about the device that is open.
func (w *watch) open(want string) {
	w.Helper()
	for _, command := range []string{"status", "doctor"} {
		out, err := floodwall(command)
		if code := exitCode(err); code != 1 || !strings.Contains(strings.Join(strings.Fields(out), " "), want) { // doctor breaks lines
			w.Errorf("%s ends with %d, and says\n%s\nwant 1, and %q", command, code, out, want)
		}
	}
}

// daemon starts the daemon and waits until it observes the policy. The returned function kills the daemon.
func (w *watch) daemon(args ...string) (kill func()) {
	w.Helper()
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		w.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("floodwall", append([]string{"daemon"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	var once sync.Once
	kill = func() {
		once.Do(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
	}
	w.Cleanup(kill)
	return kill
}
