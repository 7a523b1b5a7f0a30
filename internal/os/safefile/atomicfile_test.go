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

// holds fails the test unless a directory has just these files: the name, then the content.
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

// TestReplace makes a file, replaces it, and replaces a link without following it.
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

// TestReplaceFails has a directory in the place of the file, no directory, a writer that fails, and no right to write: the error names the
// file, and nothing is left.
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

// unwritable names the error of a directory where nobody makes files, which some kernels call by another name.
func unwritable(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return errors.New("/proc/sys/version: operation not permitted")
	}
	return err
}

// TestFullDisk fills a disk: the old content stays, and the disk has as much space as before.
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

// killVar names the file that a process of TestKill replaces until it is killed.
const killVar = "FLOODWALL_TEST_KILL"

// TestKill kills a writer between the two halves of its content: the old content stays. A temporary file of a writer that lives stays,
// too, and that of a killed one is removed by the next writer.
func TestKill(t *testing.T) {
	if file := os.Getenv(killVar); file != "" {
		_ = ReplaceWith(file, 0o600, func(f *os.File) error {
			_, err := f.WriteString("half")
			fmt.Println("half")           // the test waits for it
			io.Copy(io.Discard, os.Stdin) // ends with the process of the test
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
	count(1) // its writer lives
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if text, err := os.ReadFile(file); string(text) != "old" {
		t.Errorf("after the kill: %q, %v", text, err)
	}
	count(1)
	must(t, Replace(file, []byte("new"), 0o600))
	holds(t, dir, prefix+"x ", "file new")
}

// TestManyWriters has writers replace a file at once, which sweep each other's directory: none fails, and one content stays, whole.
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

// TestCreate makes a file once.
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
