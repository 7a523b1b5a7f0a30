// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// insideUID is the first user ID of tests in namespaces of their own. The kernel records the user who loaded a program. So each test has a user ID of
// its own, which distinguishes its programs from all others on the machine. The upper bits of the ID are the number of the test's process in the
// package. The lower bits are the ID of the process that starts the test's process (at most 1<<22, proc(5)).
const insideUID = 1 << 30

// insides is the number of processes that Inside has started.
var insides atomic.Uint32

// newUID returns a user ID that no other running test has.
func newUID() uint32 { return insideUID + insides.Add(1)%256<<22 + uint32(os.Getpid()) }

// insideVar is the environment variable with the name of the test that runs in the inner process.
const insideVar = "FLOODWALL_TEST_INSIDE"

// Inside reports whether the test runs in an inner process, which has all capabilities and new network and mount namespaces. These namespaces have
// only the loopback device, an empty BPF file system at /sys/fs/bpf, and nothing in /var/lib and /run/floodwall. If the test does not run in such a
// process, Inside runs it in a new one, and fails the test if that process fails. Such tests run in parallel, because they mostly wait for the kernel.
// So the test must not call t.Parallel or t.Setenv before Inside. A test starts with
//
//	if !testutil.Inside(t) {
//		return
//	}
//
// Inside skips the test under the same condition as RequireRoot.
func Inside(t *testing.T) bool {
	t.Helper()
	if of := os.Getenv(insideVar); of != "" && (t.Name() == of || strings.HasPrefix(t.Name(), of+"/")) {
		if t.Name() == of {
			furnished.Do(func() { furnish(t) })
		}
		return true
	}
	RequireRoot(t)
	t.Parallel()
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.Command("/proc/self/exe", "-test.run="+pattern, "-test.v="+verbose(), "-test.timeout="+most())
	// iptables-legacy has one lock for the whole machine. But the tables that it protects belong to a network namespace, so each test gets a lock of
	// its own.
	lock := filepath.Join(t.TempDir(), "xtables.lock")
	cmd.Env = append(os.Environ(), insideVar+"="+t.Name(), "XTABLES_LOCKFILE="+lock)
	uid := newUID()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Credential:   &syscall.Credential{Uid: uid, Gid: uid},
		AmbientCaps:  capabilities(t),
		Pdeathsig:    syscall.SIGKILL,
	}
	// The kernel kills the process when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG). Without LockOSThread, another goroutine could
	// use that thread and end it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	killUser(uid)
	if p := cmd.ProcessState; p != nil { // scripts/test lists the tests that take most
		t.Logf("CPU: %.2f s user, %.2f s system", p.UserTime().Seconds(), p.SystemTime().Seconds())
	}
	if err != nil {
		t.Errorf("inside of its namespaces: %v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
	return false
}

// killUser kills all processes of a user. A test has started these processes and left them behind.
func killUser(uid uint32) {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		var stat unix.Stat_t
		if pid, err := strconv.Atoi(filepath.Base(process)); err == nil && unix.Stat(process, &stat) == nil && stat.Uid == uid {
			unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// most returns the time limit of the inner process. It is shorter than the limit of scripts/test for a package, so that the inner process can report
// which test hangs.
func most() string {
	if Long() {
		return "3h"
	}
	return "50m"
}

func verbose() string {
	if testing.Verbose() {
		return "true"
	}
	return "false"
}

// capabilities lists all capabilities of this process.
func capabilities(t *testing.T) (list []uintptr) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatalf("capabilities: %v", err)
	}
	for c := range uintptr(64) {
		if data[c/32].Permitted>>(c%32)&1 == 1 {
			list = append(list, c)
		}
	}
	return list
}

// runDir is the directory of a daemon's sockets, and of the lock file that prevents a second daemon.
const runDir = "/run/floodwall"

// furnished makes sure that furnish runs only once, because a test may call Inside more than once.
var furnished sync.Once

// furnish mounts a BPF file system and a file system for the state of commands. It also sets the loopback device up.
func furnish(t *testing.T) {
	t.Helper()
	for unix.Unmount(bpfRoot, unix.MNT_DETACH) == nil { // the machine's own, which must not appear if a test unmounts
	}
	if err := unix.Mount("bpf", bpfRoot, "bpf", 0, "mode=0700"); err != nil {
		t.Fatalf("mounting a BPF file system: %v", err)
	}
	if err := unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatalf("covering /var/lib: %v", err)
	}
	if err := keepRunDir(); err != nil {
		t.Fatalf("directory of the daemon: %v", err)
	}
	if err := unix.Mount("tmpfs", runDir, "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatalf("covering %s: %v", runDir, err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("loopback device: %v: %s", err, out)
	}
}

// keepRunDir makes the machine's runDir with a file in it. If the directory were empty, a daemon of the machine, or of a test that shares its mounts,
// would remove it. The kernel would then unmount everything that is mounted there, in every namespace (detach_mounts, fs/namespace.c).
func keepRunDir() error {
	for {
		err := os.Mkdir(runDir, 0o755)
		if err == nil { // the machine's daemons use this directory too, and require that root owns it
			err = os.Chown(runDir, 0, 0)
		}
		if err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		f, err := os.OpenFile(filepath.Join(runDir, "used-by-tests"), os.O_CREATE, 0o600)
		if err == nil {
			return f.Close()
		}
		if !errors.Is(err, os.ErrNotExist) { // another process has just removed the directory
			return err
		}
	}
}
