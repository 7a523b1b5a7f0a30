// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// release is an installed version of floodwall.
type release struct {
	t      *testing.T
	binary string
	state  string
}

func (r release) run(args ...string) (string, error) {
	cmd := exec.Command(r.binary, append([]string{"--state", r.state}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r release) must(want string, args ...string) {
	r.t.Helper()
	if out, err := r.run(args...); err != nil || !strings.Contains(out, want) {
		r.t.Fatalf("%s %v: %v, want %q in\n%s", r.binary, args, err, want, out)
	}
}

func (r release) refuses(want string, args ...string) {
	r.t.Helper()
	if out, err := r.run(args...); err == nil || !strings.Contains(out, want) {
		r.t.Errorf("%s %v: %v, want an error with %q in\n%s", r.binary, args, err, want, out)
	}
}

// passed sends frames from fw1 all the time. Every policy of the test drops these frames. The returned function stops the sender, and returns the
// number of frames that passed XDP on fw0.
func passed(t *testing.T) (count func() int) {
	t.Helper()
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // in network byte order
	tap, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := netlink.LinkByName("fw0")
	if err == nil {
		err = unix.Bind(tap, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Attrs().Index})
	}
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan bool), make(chan error)
	sent := 0
	go func() {
		done <- testutil.SendFor("fw1", []string{"udp 198.51.100.66:9 > 192.0.2.1:9"}, func(n int) bool {
			time.Sleep(200 * time.Microsecond)
			select {
			case <-stop:
				sent = n
				return false
			default:
				return true
			}
		})
	}()
	return func() (through int) {
		close(stop)
		if err := <-done; err != nil || sent < 1000 {
			t.Errorf("only %d frames were sent: %v", sent, err)
		}
		frame := make([]byte, 2048)
		for {
			n, err := unix.Read(tap, frame)
			if err != nil {
				break
			}
			if strings.Contains(string(frame[:n]), string([]byte{198, 51, 100, 66, 192, 0, 2, 1})) {
				through++
			}
		}
		unix.Close(tap)
		return through
	}
}

// TestUpgrade upgrades from the previous release to this version while the daemon and the trial of that release run. Then it goes back to the
// previous release. Each version must either read the other's state, or refuse it with a reason. No frame may pass that all policies drop.
func TestUpgrade(t *testing.T) {
	binary := testutil.Previous(t)
	if !inside(t) {
		return
	}
	dir := t.TempDir()
	policy := func(name string) string {
		file := filepath.Join(dir, name+".yaml")
		text := "devices: [fw0]\nsets: {bans: {dynamic: true, max: 1000}}\nrules:\n" +
			"  - {name: always, from: 198.51.100.66, then: drop}\n  - {name: banned, from: $bans, then: drop}\n  - {name: " + name + ", proto: udp, port: 1, then: drop}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	state := filepath.Join(dir, "state")
	before, now := release{t, binary, state}, release{t, "floodwall", state}

	before.must("applied generation 1", "apply", policy("one"))
	daemon := exec.Command(binary, "--state", state, "daemon")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { daemon.Process.Kill(); daemon.Wait() }()
	through := passed(t)
	before.must("blocked 1", "block", "198.51.100.7")
	before.must("on trial", "apply", "--confirm", "5m", policy("two"))
	now.must("on trial", "status")
	now.must("blocked 1", "block", "198.51.100.8")
	now.must("confirmed", "confirm")
	now.must("on trial", "apply", "--confirm", "5m", policy("three"))
	for _, args := range [][]string{{"confirm"}, {"rollback"}, {"apply", policy("four")}, {"unload"}, {"status"}} {
		before.refuses("needs-a-newer-floodwall", args...)
	}
	now.must("confirmed", "confirm")
	now.must("2 bans kept", "apply", policy("five"))
	future := filepath.Join("/sys/fs/bpf/floodwall", "FORMAT-99-needs-a-newer-floodwall")
	if err := os.Symlink("nothing", future); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"rollback"}, {"apply", policy("four")}, {"unload"}, {"status"}, {"block", "198.51.100.9"}} {
		now.refuses("has format 99", args...)
	}
	if err := os.Remove(future); err != nil {
		t.Fatal(err)
	}
	now.must("five.yaml", "status")

	opened, err := datapath.OpenState(datapath.DefaultDir, false)
	if err == nil { // as if a version with other formats of dynamic sets and counters had loaded it
		err = opened.SetNote(4, datapath.Note("formats"), []byte(`{"counters": 9, ".data.dynamic": 9}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"status"}, {"block", "198.51.100.9"}, {"blocked"}} {
		now.refuses("generation 4 was loaded by another version", args...)
	}
	now.must("1 ban kept", "apply", policy("six")) // the ban that this version got
	now.must("applied generation 6", "apply", policy("seven"))
	now.must("runs again", "rollback")
	if n := through(); n > 0 {
		t.Errorf("%d frames passed that all policies drop", n)
	}
	now.must("unloaded", "unload")
	before.must("applied generation 1", "apply", policy("one"))
	before.must("unloaded", "unload")
}
