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

// insideUID is the first of the users that tests run as inside of namespaces of their own. The kernel notes the user in
// the programs that he loads, which tells the programs of a test from all others on the machine. So each test has another
// user: the number of its process in the package stands above that of the process that starts it (at most 1<<22, proc(5)).
const insideUID = 1 << 30

// insides counts the processes that Inside has started.
var insides atomic.Uint32

// newUID is a user that no other test runs as at present.
func newUID() uint32 { return insideUID + insides.Add(1)%256<<22 + uint32(os.Getpid()) }

// insideVar names, in the environment of the process inside, the test that runs there.
const insideVar = "FLOODWALL_TEST_INSIDE"

// Inside reports whether the test runs in a process of its own, with all capabilities, whose network and mount
// namespaces are new: only the loopback device, an empty BPF file system at /sys/fs/bpf, and nothing in /var/lib and
// /run/floodwall. If not, it runs the test
// in such a process, and fails it when that fails. Such tests run in parallel, as most of their time they wait for the
// kernel; so the test must not call t.Parallel or t.Setenv before Inside. A test begins with
//
//	if !testutil.Inside(t) {
//		return
//	}
//
// It skips the test as RequireRoot does.
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
	// The lock of iptables-legacy is one for the machine, but what it protects is the network namespace's.
	lock := filepath.Join(t.TempDir(), "xtables.lock")
	cmd.Env = append(os.Environ(), insideVar+"="+t.Name(), "XTABLES_LOCKFILE="+lock)
	uid := newUID()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Credential:   &syscall.Credential{Uid: uid, Gid: uid},
		AmbientCaps:  capabilities(t),
		Pdeathsig:    syscall.SIGKILL,
	}
	// The kernel kills it with the thread that started it (prctl(2), PR_SET_PDEATHSIG), which another goroutine could take and
	// end.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	killUser(uid)
	if p := cmd.ProcessState; p != nil { // scripts/test says which tests have most
		t.Logf("CPU: %.2f s user, %.2f s system", p.UserTime().Seconds(), p.SystemTime().Seconds())
	}
	if err != nil {
		t.Errorf("inside of its namespaces: %v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
	return false
}

// killUser kills all processes of a user: those that a test started and that did not end with it.
func killUser(uid uint32) {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		var stat unix.Stat_t
		if pid, err := strconv.Atoi(filepath.Base(process)); err == nil && unix.Stat(process, &stat) == nil && stat.Uid == uid {
			unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// most is how long the process inside may take: less than scripts/test gives a package, as this process can say which test hangs.
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

// capabilities lists all that this process has.
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

// runDir has the sockets of a daemon, and the lock by which it is the only one.
const runDir = "/run/floodwall"

// furnished is done when the process inside has what furnish gives it, as a test may call Inside more than once.
var furnished sync.Once

// furnish mounts the BPF file system and a place for what commands keep, and sets the loopback device up.
func furnish(t *testing.T) {
	t.Helper()
	for unix.Unmount(bpfRoot, unix.MNT_DETACH) == nil { // the machine's own, which a test that unmounts must not find
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

// keepRunDir makes the machine's runDir, with a file in it. A daemon of the machine, or of a test that shares its mounts, removes the
// directory when that is empty, and the kernel then detaches what is mounted there in every namespace (detach_mounts, fs/namespace.c).
func keepRunDir() error {
	for {
		err := os.Mkdir(runDir, 0o755)
		if err == nil { // it is the machine's, and a daemon there takes root's alone
			err = os.Chown(runDir, 0, 0)
		}
		if err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		f, err := os.OpenFile(filepath.Join(runDir, "used-by-tests"), os.O_CREATE, 0o600)
		if err == nil {
			return f.Close()
		}
		if !errors.Is(err, os.ErrNotExist) { // somebody has just removed the directory
			return err
		}
	}
}
