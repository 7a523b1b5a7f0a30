// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestIdleLooks counts how often an idle daemon starts iptables-save. Legacy iptables does not report changes by other programs, so the daemon must
// poll. All its tasks share one result. When each task polled on its own, there were 19 polls a second.
func TestIdleLooks(t *testing.T) {
	if !inside(t) {
		return
	}
	dir := t.TempDir()
	real, err := exec.LookPath("iptables-save")
	if err != nil {
		t.Fatal(err)
	}
	counted := filepath.Join(dir, "counted")
	script := "#!/bin/sh\necho >>" + counted + "\nexec " + real + ` "$@"`
	if err := os.WriteFile(filepath.Join(dir, "iptables-save"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	mustFloodwall(t, "apply", drops(t, 7), "--target", "iptables")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	startDaemon(t)
	count := func() int {
		data, _ := os.ReadFile(counted)
		return strings.Count(string(data), "\n")
	}
	waitFor(t, "the first look", func() bool { return count() > 0 })
	before, start := count(), time.Now()
	time.Sleep(4 * time.Second)
	const tables = 3
	looks := float64(count()-before) / tables / time.Since(start).Seconds()
	t.Logf("%.1f looks a second", looks)
	if looks > 17 {
		t.Errorf("an idle daemon looks at the tables of iptables %.1f times a second", looks)
	}
}

// TestIdleNode counts the system calls of an idle daemon that is a node of a fleet. It counts calls that inspect the kernel and files. It does not
// count calls by which the Go runtime waits. When each task inspected everything on its own, there were 1,100 calls a second. If another tool removes
// the program from a device, the daemon must still attach it again.
func TestIdleNode(t *testing.T) {
	if !inside(t) {
		return
	}
	sh(t, "ip link set lo up")
	dir := filepath.Join(t.TempDir(), "hub")
	file := filepath.Join(t.TempDir(), "policy.yaml") // with xdp: flooded the daemon counts packets ten times a second
	writeFile(t, file, "devices: [fw0]\nsets: {bans: {dynamic: true, max: 1000, timeout: 1h}}\nrules: [{from: $bans, then: drop}]\n")
	mustFloodwall(t, "apply", file, "--target", "xdp")
	mustFloodwall(t, "hub", "init", "--dir", dir, "--address", "192.0.2.1")
	startHub(t, dir)
	waitFor(t, "the hub", func() bool {
		text, _ := os.ReadFile(dir + ".log")
		return strings.Contains(string(text), "serves nodes")
	})
	mustFloodwall(t, strings.Fields(mustFloodwall(t, "hub", "invite", "web-1", "--dir", dir))[1:]...)
	daemon := startDaemon(t)
	waitFor(t, "the fleet", func() bool { return strings.Contains(mustFloodwall(t, "status"), "fleet: node web-1, hub ") })
	time.Sleep(2 * time.Second) // the start is over
	// On a busy machine the start takes longer. Then another look finds the daemon idle.
	if !testutil.Eventually(40*time.Second, func() bool { return daemon.rests(t) }) {
		t.Error("an idle node makes more than 400 system calls a second, or more than 70 of them bpf")
	}
	sh(t, "bpftool link detach pinned /sys/fs/bpf/floodwall/links/fw0")
	waitFor(t, "the program is back", func() bool { return strings.Contains(daemon.said.String(), "device fw0 is filtered again") })
}

// rests reports whether the daemon makes few system calls. It counts for the time after which each task looks again though nothing has changed, so the
// result does not depend on when the tasks do so.
func (h *apiHost) rests(t *testing.T) bool {
	t.Helper()
	calls, begin := testutil.Syscalls(t, h.daemon.Process.Pid), time.Now()
	time.Sleep(periodic.Longest)
	counts, took := calls(), time.Since(begin).Seconds()
	for _, wait := range []uint64{unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_EPOLL_PWAIT, unix.SYS_SCHED_YIELD, unix.SYS_TGKILL, unix.SYS_GETPID, unix.SYS_RT_SIGRETURN, unix.SYS_MADVISE} {
		delete(counts, wait)
	}
	sum := uint64(0)
	for _, n := range counts {
		sum += n
	}
	looks := float64(counts[unix.SYS_BPF]) / took
	t.Logf("%.0f system calls a second, %.0f of them bpf: %v", float64(sum)/took, looks, counts)
	return float64(sum)/took <= 400 && looks <= 70
}
