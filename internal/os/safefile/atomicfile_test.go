// SPDX-License-Identifier: Apache-2.0

package safefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// holds fails the test unless a directory contains exactly these files, each as its name and its content.
func holds(t *testing.T, dir string, want ...string) {
	t.Helper()
	var got []string
	list, err := os.ReadDir(dir)
	for _, e := range list {
		if text, e2 := os.ReadFile(filepath.Join(dir, e.Name())); e.IsDir() {
			got = append(got, e.Name()+"/")
		} else {
			err = errors.Join(err, e2)
			got = append(got, e.Name()+" "+string(text))
		}
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the directory has %q, %v, want %q", got, err, want)
	}
}

func mode(t *testing.T, file string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestReplace creates a file and replaces it. It also replaces a symbolic link, which must not be followed.
func TestReplace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, victim := filepath.Join(dir, "file"), filepath.Join(t.TempDir(), "victim")
	must(t, Replace(file, []byte("old"), 0o600))
	if m := mode(t, file); m != 0o600 {
		t.Errorf("mode %v", m)
	}
	must(t, Replace(file, []byte("new"), 0o664))
	if m := mode(t, file); m != 0o664 {
		t.Errorf("mode %v: neither the umask nor the mode of before counts", m)
	}
	holds(t, dir, "file new")
	must(t, os.WriteFile(victim, []byte("whole"), 0o600), os.Remove(file), os.Symlink(victim, file), Replace(file, []byte("new"), 0o600))
	if m := mode(t, file); m != 0o600 {
		t.Errorf("mode %v, want that of a file", m)
	}
	holds(t, filepath.Dir(victim), "victim whole")
}

// TestReplaceFails checks four failures: a directory has the name of the file, the directory does not exist, the writer fails, and there is no
// permission to write. The error must name the file, and no temporary file may remain.
func TestReplaceFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "is"), 0o700), os.WriteFile(filepath.Join(dir, "old"), []byte("old"), 0o600))
	broken := errors.New("broken")
	for name, err := range map[string]error{
		"file exists":               Replace(filepath.Join(dir, "is"), nil, 0o600),
		"none/it: no such file":     Replace(filepath.Join(dir, "none", "it"), nil, 0o600),
		"old: broken":               ReplaceWith(filepath.Join(dir, "old"), 0o600, func(*os.File) error { return broken }),
		"old: file already closed":  ReplaceWith(filepath.Join(dir, "old"), 0o600, (*os.File).Close),
		"sys/version: operation no": unwritable(Replace("/proc/sys/version", nil, 0o600)),
	} {
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), prefix+"0") {
			t.Errorf("want %q, got %v", name, err)
		}
	}
	holds(t, dir, "is/", "old old")
}

// unwritable returns one error for a directory in which no process can create files. Kernels return different errors for it.
func unwritable(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return errors.New("/proc/sys/version: operation not permitted")
	}
	return err
}

// TestFullDisk writes a file that does not fit on the disk. The old content must stay. The failed write must not use up space on the disk.
func TestFullDisk(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	defer unix.Unmount(dir, unix.MNT_DETACH)
	file := filepath.Join(dir, "file")
	must(t, Replace(file, []byte("old"), 0o600))
	large := bytes.Repeat([]byte("x"), 128<<10)
	for _, err := range []error{Replace(file, large, 0o600), Create(filepath.Join(dir, "new"), large, 0o600)} {
		if !errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), prefix) {
			t.Errorf("a full disk: %v", err)
		}
	}
	holds(t, dir, "file old")
	must(t, Replace(file, large[:32<<10], 0o600))
}

// killVar is an environment variable of the process that TestKill kills. It names the file that the process replaces.
const killVar = "FLOODWALL_TEST_KILL"

// TestKill kills a writer between the two halves of its content. The old content must stay. The temporary file of a running writer must also stay.
// The temporary file of a killed writer must be removed by the next writer.
func TestKill(t *testing.T) {
	if file := os.Getenv(killVar); file != "" {
		_ = ReplaceWith(file, 0o600, func(f *os.File) error {
			_, err := f.WriteString("half")
			fmt.Println("half")           // tells the test that half is written
			io.Copy(io.Discard, os.Stdin) // ends together with the process of the test
			return errors.Join(err, fs.ErrClosed)
		})
		return
	}
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("old"), 0o600), os.WriteFile(filepath.Join(dir, prefix+"x"), nil, 0o600))
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestKill$")
	cmd.Env = append(os.Environ(), killVar+"="+file)
	_, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	_, err = out.Read(make([]byte, 4))
	must(t, err)
	Sweep(dir)
	count := func(want int) {
		t.Helper()
		if all, err := filepath.Glob(filepath.Join(dir, prefix+"[0-9]*")); len(all) != want || err != nil {
			t.Errorf("temporary files: %v, %v, want %d", all, err, want)
		}
	}
	count(1) // that of the running writer
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if text, err := os.ReadFile(file); string(text) != "old" {
		t.Errorf("after the kill: %q, %v", text, err)
	}
	count(1)
	must(t, Replace(file, []byte("new"), 0o600))
	holds(t, dir, prefix+"x ", "file new")
}

// TestManyWriters replaces a file from several writers at once. Each writer also sweeps the directory. None may fail, and the file must have the
// complete content of one writer.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				if err := Replace(filepath.Join(dir, "file"), bytes.Repeat([]byte{'a' + byte(i)}, 5000), 0o600); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(filepath.Join(dir, "file"))
	must(t, err)
	if len(text) != 5000 || bytes.Count(text, text[:1]) != 5000 {
		t.Errorf("a mixture: %.20q", text)
	}
	holds(t, dir, "file "+string(text))
}

// TestCreate creates a file. A second creation must fail.
func TestCreate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, Create(file, []byte("one"), 0o600))
	if err := Create(file, []byte("two"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second time: %v", err)
	}
	if m := mode(t, file); m != 0o600 {
		t.Errorf("mode %v", m)
	}
	holds(t, dir, "file one")
}
