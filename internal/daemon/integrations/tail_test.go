// SPDX-License-Identifier: Apache-2.0

package integrations

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// written is a followed file.
type written struct {
	*testing.T
	path string
	tail *tail
}

func newWritten(t *testing.T) *written {
	path := filepath.Join(t.TempDir(), "eve.json")
	w := &written{t, path, &tail{path: path}}
	t.Cleanup(w.tail.close)
	return w
}

func (w *written) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *written) add(path, text string) {
	w.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	w.do(err)
	_, err = f.WriteString(text)
	w.do(errors.Join(err, f.Close()))
}

func (w *written) read() (lines []string, err error) {
	err = w.tail.read(func(line []byte) { lines = append(lines, string(line)) }, func() bool { return false })
	return lines, err
}

func (w *written) want(when string, lines ...string) {
	w.Helper()
	got, err := w.read()
	if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", lines) {
		w.Fatalf("%s: read %q, %v; want %q", when, got, err, lines)
	}
}

// TestFollowed moves, truncates and removes a file, like logrotate and people. Each new line must be read once, and no old line.
func TestFollowed(t *testing.T) {
	t.Parallel()
	w := newWritten(t)
	w.add(w.path, "old\nhalf of an old")
	w.want("at first")
	w.add(w.path, " line\none\ntw")
	w.want("with half a line", "one")
	w.add(w.path, "o\n\nthree\n")
	w.want("with its end", "two", "", "three")

	// Rotated by renaming: the writer goes on with the old file for a while.
	w.do(os.Rename(w.path, w.path+".1"))
	w.add(w.path+".1", "four\n")
	w.want("without a file", "four")
	w.add(w.path, "")
	w.add(w.path+".1", "five\nhalf")
	w.want("with an empty file", "five")
	w.add(w.path+".1", " six\n")
	w.add(w.path, "seven\n")
	w.want("with a new file", "half six", "seven")
	w.add(w.path, "eight\n")
	w.want("in the new file", "eight")

	// Rotated by copying: the file is truncated in the middle of a line.
	w.add(w.path, "unfinished")
	w.want("before it is cut")
	w.do(os.Truncate(w.path, 0))
	w.add(w.path, "nine\n")
	w.want("after it is cut", "nine")

	w.do(os.Truncate(w.path, 0))
	w.add(w.path, "NINE\n")
	w.want("after it is cut, and as long as before", "NINE")
	w.do(os.Truncate(w.path, 0))
	w.add(w.path, "nine\nand a half\n")
	w.want("after it is cut, and longer than before", "nine", "and a half")
	w.do(os.Truncate(w.path, 0))
	w.want("while it is empty")

	// A symbolic link replaces the file, and later a file exists again.
	w.do(os.Remove(w.path))
	w.do(os.Symlink(w.path+".1", w.path))
	if lines, err := w.read(); err == nil || lines != nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("a symbolic link: %q, %v", lines, err)
	}
	w.do(os.Remove(w.path))
	w.add(w.path, "ten\n")
	w.want("after a symbolic link", "ten")
}

// TestAppears reads a file from its beginning that was missing before.
func TestAppears(t *testing.T) {
	t.Parallel()
	w := newWritten(t)
	if _, err := w.read(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("without a file: %v", err)
	}
	w.add(w.path, "one\ntwo")
	w.want("when it appears", "one")
	w.add(w.path, "\n")
	w.want("later", "two")
}

// TestNoFile checks that only a regular file of an allowed owner is accepted, and that opening never blocks.
func TestNoFile(t *testing.T) {
	testutil.RequireRoot(t) // to make a device
	t.Parallel()
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"fifo":           {func(path string) error { return unix.Mkfifo(path, 0o600) }, "is no regular file"},
		"directory":      {func(path string) error { return os.Mkdir(path, 0o700) }, "is no regular file"},
		"device":         {func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) }, "is no regular file"},
		"symbolic link":  {func(path string) error { return os.Symlink("/etc/passwd", path) }, "is a symbolic link"},
		"of everybody":   {func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666)) }, "anybody may write it"},
		"unix socket":    {func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) }, "is no regular file"},
		"without folder": {func(path string) error { return os.Remove(filepath.Dir(path)) }, "does not exist"},
	} {
		w := newWritten(t)
		w.do(c.make(w.path))
		_, err := w.read()
		var hinted interface{ Hint() string }
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &hinted) || hinted.Hint() == "" {
			t.Errorf("%s: %v, want an error that says %q, with a hint", name, err, c.want)
		}
		if name == "without folder" {
			w.do(os.Mkdir(filepath.Dir(w.path), 0o700)) // the end of the test needs the directory
		}
	}
}

// TestLongLine writes a line that is longer than any line of Suricata. The line must be skipped, and no more than usual may be stored.
func TestLongLine(t *testing.T) {
	t.Parallel()
	long := int64(32 << 20)
	if os.Getenv("FLOODWALL_LONG") != "" {
		long = 1 << 30
	}
	w := newWritten(t)
	w.add(w.path, "")
	w.want("at first")
	w.do(os.Truncate(w.path, long)) // zeros
	w.want("a part of a long line")
	w.add(w.path, "\none\n"+strings.Repeat("x", mostLine)+"\n"+strings.Repeat("y", mostLine+1)+"\ntwo\n")
	w.want("after a long line", "one", strings.Repeat("x", mostLine), "two")
	if w.tail.skipped != 2 || cap(w.tail.part) > 2*mostLine {
		t.Errorf("%d lines were skipped, and %d bytes are kept; want 2, and at most %d", w.tail.skipped, cap(w.tail.part), 2*mostLine)
	}
}
