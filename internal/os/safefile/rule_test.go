// SPDX-License-Identifier: Apache-2.0

package safefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestBreach checks which breach of a rule is reported for the owner and the mode of a file.
func TestBreach(t *testing.T) {
	t.Parallel()
	stranger := Rule{Owners: []int{os.Geteuid() + 1}}
	for _, c := range []struct {
		rule  Rule
		mode  os.FileMode
		cause string
	}{
		{Private(), 0o600, ""},
		{Private(), 0o400, ""},
		{Private(), 0o640, "can be read by others: its mode is 0640"},
		{Private(), 0o602, "can be written by others: its mode is 0602"},
		{Private(), 0o666, "can be read and written by others: its mode is 0666"},
		{Private(), 0o611, "can be executed by others: its mode is 0611"},
		{Unshared(), 0o644, ""},
		{Unshared(), 0o664, "can be written by others: its mode is 0664"},
		{Rule{Closed: ToWriters, Sticky: true}, 0o666 | os.ModeSticky, "can be written by others: its mode is 0666"}, // the sticky bit counts only for directories
		{Rule{}, 0o666, ""},
		{stranger, 0o600, "belongs to user "},
	} {
		file := filepath.Join(t.TempDir(), "file")
		must(t, os.WriteFile(file, nil, 0o600))
		must(t, os.Chmod(file, c.mode))
		info, err := os.Stat(file)
		must(t, err)
		if cause := c.rule.Breach(info); !strings.HasPrefix(cause, c.cause) || (cause == "") != (c.cause == "") {
			t.Errorf("mode %04o by %+v: %q, not %q", c.mode, c.rule, cause, c.cause)
		}
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o777|os.ModeSticky))
	info, err := os.Stat(dir)
	must(t, err)
	if cause := (Rule{Closed: ToWriters, Sticky: true}).Breach(info); cause != "" {
		t.Errorf("a directory with the sticky bit %s", cause)
	}
	if Unshared().Breach(info) == "" {
		t.Error("others can make files in a directory with the sticky bit")
	}
}

// TestReadExposed reads a secret of another user, and a secret that other users can read. Both must be rejected with a hint that contains the right
// command.
func TestReadExposed(t *testing.T) {
	t.Parallel()
	testutil.RequireRoot(t)
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, []byte("swordfish\n"), 0o600))
	resolver := Rule{Closed: ToAll &^ 0o050}
	for _, c := range []struct {
		rule Rule
		uid  int
		mode os.FileMode
		hint string // "": the file must be read
	}{
		{Private(), 0, 0o600, ""},
		{Private(), 65534, 0o600, "chown 0 FILE"},
		{Private(), 65534, 0o640, "chown 0 FILE; chmod 600 FILE"},
		{Private(), 0, 0o640, "chmod 600 FILE"},
		{resolver, 65534, 0o640, ""},
		{resolver, 65534, 0o644, "chmod 640 FILE"},
	} {
		must(t, os.Chown(file, c.uid, -1))
		must(t, os.Chmod(file, c.mode))
		text, err := c.rule.Read(file)
		var exposed *ExposedError
		switch {
		case c.hint == "" && (err != nil || string(text) != "swordfish\n"):
			t.Errorf("user %d, mode %04o: %q, %v", c.uid, c.mode, text, err)
		case c.hint != "" && (!errors.As(err, &exposed) || exposed.Hint() != strings.ReplaceAll(c.hint, "FILE", file)):
			t.Errorf("user %d, mode %04o: %v", c.uid, c.mode, err)
		}
	}
}

// TestKeyRule reads a key in a directory that another user owns, and a key from a pipe. Root does this for a process that runs as a user of its own.
func TestKeyRule(t *testing.T) {
	t.Parallel()
	testutil.RequireRoot(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	must(t, os.WriteFile(file, []byte("seed"), 0o600))
	must(t, os.Chown(file, 65534, -1))
	if _, err := Key(file).Read(file); err == nil {
		t.Error("a key is read that another user has put into a directory of root")
	}
	must(t, os.Chown(dir, 65534, -1))
	if text, err := Key(file).Read(file); err != nil || string(text) != "seed" {
		t.Errorf("the key of the owner of its directory: %q, %v", text, err)
	}
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	go func() { w.WriteString("seed"); w.Close() }()
	rule := Key(file)
	rule.Pipe = true
	if text, err := rule.Read(fmt.Sprintf("/dev/fd/%d", r.Fd())); err != nil || string(text) != "seed" {
		t.Errorf("a pipe: %q, %v", text, err)
	}
}

// TestReadNoFile reads paths that are not regular files, and a file that is too long. The call must fail without waiting.
func TestReadNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, long := filepath.Join(dir, "pipe"), filepath.Join(dir, "long")
	must(t, unix.Mkfifo(pipe, 0o600))
	must(t, os.WriteFile(long, slices.Repeat([]byte("x"), mostBytes+1), 0o600))
	for _, file := range []string{pipe, dir, long, filepath.Join(dir, "none")} {
		if _, err := Private().Read(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
