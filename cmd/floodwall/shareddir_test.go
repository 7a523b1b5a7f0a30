// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// asNobody runs a command line as the user nobody.
func asNobody(args ...string) (string, error) {
	line := append([]string{"--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"}, args...)
	out, err := exec.Command("setpriv", line...).CombinedOutput()
	return string(out), err
}

// TestSharedBPFFS keeps the state in a BPF file system in which all users can write, as `mount -t bpf` makes it. The user nobody must not be able to
// create the directory of the state before floodwall does. Nobody must not be able to move files of the state either. A move of files must detach no
// program.
func TestSharedBPFFS(t *testing.T) {
	if !inside(t) {
		return
	}
	testutil.RequireTool(t, "setpriv")
	top := t.TempDir()
	for _, d := range []string{top, filepath.Dir(top)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("bpf", top, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(top, unix.MNT_DETACH) })
	dir, policy := filepath.Join(top, "floodwall"), drops(t, 1)
	run := func(args ...string) (string, error) { return floodwall(append([]string{"--bpffs", dir}, args...)...) }
	refused := func(want string) {
		t.Helper()
		for _, args := range [][]string{{"apply", policy}, {"unload"}} {
			if out, err := run(args...); err == nil || !strings.Contains(out, want) || !strings.Contains(out, "mode=0700") {
				t.Errorf("floodwall %v: %v, want an error with %q and a remedy in\n%s", args, err, want, out)
			}
		}
	}
	filtered := func(when string) {
		t.Helper()
		if !attached(t, "fw0") {
			t.Fatalf("%s fw0 has no XDP program", when)
		}
	}

	if out, err := asNobody("mkdir", "-m", "777", dir); err != nil {
		t.Fatalf("mkdir: %v: %s", err, out)
	}
	refused("belongs to user 65534")
	if attached(t, "fw0") {
		t.Error("what was refused is attached")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}

	if out, err := run("apply", policy); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	for _, args := range [][]string{{dir, dir + "2"}, {dir + "/links", dir + "/generation-99"}} {
		if out, err := asNobody(append([]string{"mv", "-T"}, args...)...); err == nil {
			t.Fatalf("nobody could move %s: %s", args[0], out)
		}
	}
	if out, err := run("apply", policy); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}

	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	refused("can be written by others")
	filtered("after the refusal")
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"/links", dir+"/generation-99"); err != nil {
		t.Fatal(err)
	}
	if out, err := run("apply", policy); err == nil {
		t.Errorf("apply with links that were moved:\n%s", out)
	}
	filtered("after an apply with links that were moved")
	if err := firstError(os.RemoveAll(dir+"/links"), os.Rename(dir+"/generation-99", dir+"/links")); err != nil {
		t.Fatal(err)
	}
	if out, err := run("apply", policy); err != nil {
		t.Errorf("apply after they were moved back: %v\n%s", err, out)
	}
	if out, err := run("unload"); err != nil {
		t.Errorf("unload: %v\n%s", err, out)
	}
}

// attached reports whether a device has an XDP program.
func attached(t *testing.T, device string) bool {
	t.Helper()
	out, err := exec.Command("ip", "-details", "link", "show", "dev", device).CombinedOutput()
	if err != nil {
		t.Fatalf("ip link: %v: %s", err, out)
	}
	return strings.Contains(string(out), "prog/xdp")
}
