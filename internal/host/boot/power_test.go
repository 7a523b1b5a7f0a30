// SPDX-License-Identifier: Apache-2.0

package boot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/test/testutil"
)

// saverVar is the name of an environment variable. It has the directory in which a process started by TestKilled saves policies.
const saverVar = "FLOODWALL_TEST_SAVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(saverVar); dir != "" {
		saveForEver(dir)
	}
	os.Exit(m.Run())
}

// saveForEver saves one version after the other, and prints each saved version. Every third version is first on trial.
func saveForEver(dir string) {
	t := &testing.B{} // its methods are called only if something fails
	s := boot.Open(filepath.Join(dir, "state"))
	for i := 0; ; i++ {
		st := stage(t, s, source(t, filepath.Join(dir, "etc"), fmt.Sprint("v", i)))
		var err error
		if i%3 == 0 {
			err = errors.Join(st.Hold(), s.Use(context.Background(), st.ID()))
		} else {
			err = st.Commit()
		}
		if err != nil {
			panic(err)
		}
		fmt.Printf("v%d\n", i)
	}
}

// TestKilled kills processes that save policies, at random points. Each time the restored policy must be complete. It must be the last saved one or
// the one that was being saved. The next process continues with the version after it.
func TestKilled(t *testing.T) {
	random := testutil.Random(t)
	dir := t.TempDir()
	s := boot.Open(filepath.Join(dir, "state"))
	last, kills := "", testutil.Scaled(40, 100)
	for n := 0; n < kills || last == "" && n < 5*kills; n++ { // on a busy machine a process may start late
		done := saveAndDie(t, dir, time.Duration(random.Int64N(int64(40*time.Millisecond)))*time.Duration(1+n/kills))
		got, err := comesBack(s)
		if err != nil {
			t.Fatal(err)
		}
		next := "v0"
		if done != "" {
			n, _ := strconv.Atoi(done[1:])
			last, next = done, fmt.Sprint("v", n+1)
		}
		if got != last && got != next {
			t.Fatalf("policy %q comes back, want %q or %q", got, last, next)
		}
		last = got
	}
	if last == "" {
		t.Fatalf("none of %d processes came as far as to save", kills)
	}
	entries, _ := os.ReadDir(filepath.Join(dir, "state", "boot"))
	if len(entries) > 8 { // four copies, three links, a temporary one
		t.Errorf("killed processes left %d names behind", len(entries))
	}
}

// saveAndDie starts a process that saves, kills it after a time, and returns the last version that it reported as saved.
func saveAndDie(t *testing.T, dir string, after time.Duration) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), saverVar+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	runtime.LockOSThread() // the kernel kills the process when the thread that started it ends
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10*time.Millisecond + after) // a process takes about 10 ms to start
	cmd.Process.Kill()
	cmd.Wait()
	if cmd.ProcessState.Exited() {
		t.Fatalf("saving: %v: %s", cmd.ProcessState, said.String())
	}
	lines := strings.Fields(said.String())
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// TestFullDisk saves with different amounts of free space, from none to enough. Saving must either succeed, or change nothing and leave no files.
func TestFullDisk(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	dir := t.TempDir()
	list := source(t, dir, "one")
	state := t.TempDir()
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=512k,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(state, 0) })
	s := boot.Open(state)
	save(t, s, list)
	version, failed := "one", 0
	for free := int64(0); ; free += 4096 {
		fill(t, state, free)
		next := fmt.Sprintf("with-%d", free)
		st, err := s.Stage(context.Background(), source(t, dir, next))
		if err == nil {
			if err = st.Commit(); err == nil {
				version = next
			}
		}
		wantBack(t, s, version)
		if err == nil {
			break
		}
		failed++
		if !errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), "\n") {
			t.Fatalf("with %d bytes left: %v, want one error of no space", free, err)
		}
		if entries, _ := os.ReadDir(filepath.Join(state, "boot")); len(entries) != 2 {
			t.Fatalf("with %d bytes left: left behind: %v", free, entries)
		}
	}
	if failed < 10 {
		t.Errorf("saving failed only %d times, so the disk was not full", failed)
	}
}

// fill fills a file system until the given number of bytes is free.
func fill(t *testing.T, dir string, free int64) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	os.Remove(name)
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, make([]byte, int64(stat.Bavail)*stat.Bsize-free), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestHugeList saves and loads a list of 64 MB. Both must need almost no memory.
func TestHugeList(t *testing.T) {
	dir, s := t.TempDir(), boot.Open(t.TempDir())
	src := source(t, dir, "one")
	const size = 64 << 20
	if err := os.Truncate(filepath.Join(dir, "blocked.txt"), size); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	st := stage(t, s, src)
	if err := st.Verify(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := st.Commit(); err != nil {
		t.Fatal(err)
	}
	saved, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
		t.Errorf("saving and loading a list of %d bytes took %d bytes of memory", size, took)
	}
	p, err := saved.Policy()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(p.Sets[0].File); err != nil || info.Size() != size {
		t.Errorf("the copy of the list: %v (%v), want %d bytes", info, err, size)
	}
}

// TestInterrupted cancels the copying of a list. No part of the copy may remain.
func TestInterrupted(t *testing.T) {
	state := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := boot.Open(state).Stage(ctx, source(t, t.TempDir(), "one")); !errors.Is(err, context.Canceled) {
		t.Errorf("stage: %v, want that it was canceled", err)
	}
	if left, _ := filepath.Glob(filepath.Join(state, "boot", "*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}
