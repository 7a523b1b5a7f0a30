// SPDX-License-Identifier: Apache-2.0

package integrations

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// The limits of reading.
const (
	mostLine = 1 << 20  // bytes of a line; the longest lines of Suricata, with payloads of packets, have a few hundred thousand bytes
	chunk    = 64 << 10 // bytes of a read
	mostMark = 256      // bytes of `mark`: an event is longer, and its first bytes contain its time
)

// tail follows a file that another program appends lines to. The file may be moved away or truncated at any time.
type tail struct {
	path  string
	file  *os.File // nil: the file does not exist yet
	at    int64    // number of bytes of the file that were read
	fresh bool     // the file was missing before; when it appears, it is read from its beginning

	mark []byte // the last bytes that were read; they show whether the file was truncated and has grown again

	part    []byte // an incomplete line at the end
	tooLong bool   // the line is dropped because it is too long
	skipped int    // lines that were too long
	buffer  []byte
}

// read calls fn for each available line, without its end. A line is valid until fn returns. If stop returns true, read ends before the end of the
// file.
func (t *tail) read(fn func(line []byte), stop func() bool) error {
	if t.file == nil {
		file, err := open(t.path)
		if errors.Is(err, fs.ErrNotExist) {
			t.fresh = true
		}
		if err != nil {
			return err
		}
		if err := t.follow(file); err != nil {
			return err
		}
	}
	if err := t.drain(fn, stop); err != nil || stop() {
		return err
	}
	next, err := t.successor()
	if err != nil || next == nil {
		return err
	}
	// By now the writer has opened the new file, so the old file has its last line.
	if err := t.drain(fn, stop); err != nil || stop() {
		next.Close()
		return err
	}
	t.close()
	t.fresh = true
	if err := t.follow(next); err != nil {
		return err
	}
	return t.drain(fn, stop)
}

// follow starts to read a file. The first time, it begins at the end of the file, because the existing lines are old.
func (t *tail) follow(file *os.File) error {
	whence := io.SeekStart
	if !t.fresh {
		whence = io.SeekEnd
	}
	at, err := file.Seek(0, whence)
	if err != nil {
		file.Close()
		return fmt.Errorf("seek %s: %w", t.path, err)
	}
	t.file, t.at, t.part, t.tooLong, t.fresh = file, at, t.part[:0], false, true
	t.mark = make([]byte, min(at, mostMark))
	if _, err := file.ReadAt(t.mark, at-int64(len(t.mark))); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", t.path, err)
	}
	if at > 0 && t.mark[len(t.mark)-1] != '\n' {
		t.tooLong, t.skipped = true, t.skipped-1 // skip the rest of an old line
	}
	return nil
}

// drain reads to the end of the file. If the file was truncated, it starts at the beginning.
func (t *tail) drain(fn func(line []byte), stop func() bool) error {
	cut, err := t.wasCut()
	if err != nil {
		return err
	}
	if cut {
		if _, err := t.file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("seek %s: %w", t.path, err)
		}
		t.at, t.part, t.tooLong, t.mark = 0, t.part[:0], false, t.mark[:0]
	}
	if t.buffer == nil {
		t.buffer = make([]byte, chunk)
	}
	for !stop() {
		n, err := t.file.Read(t.buffer)
		t.at += int64(n)
		t.mark = append(t.mark, t.buffer[max(0, n-mostMark):n]...)
		t.mark = append(t.mark[:0], t.mark[max(0, len(t.mark)-mostMark):]...)
		t.split(t.buffer[:n], fn)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// wasCut reports whether the bytes that were read are no longer in the file.
func (t *tail) wasCut() (bool, error) {
	now := make([]byte, len(t.mark))
	_, err := t.file.ReadAt(now, t.at-int64(len(now)))
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return err == nil && !bytes.Equal(now, t.mark), err
}

// split calls fn for the complete lines in text, and keeps the rest.
func (t *tail) split(text []byte, fn func(line []byte)) {
	for len(text) > 0 {
		line, rest, ended := bytes.Cut(text, []byte{'\n'})
		if t.tooLong = t.tooLong || len(t.part)+len(line) > mostLine; t.tooLong {
			t.part = t.part[:0]
		} else {
			t.part = append(t.part, line...)
		}
		if text = rest; !ended {
			return
		}
		if t.tooLong {
			t.skipped++
		} else {
			fn(t.part)
		}
		t.part, t.tooLong = t.part[:0], false
	}
}

// successor returns the file that has replaced the followed file, or nil when there is none. An empty file does not count, because a program that
// rotates files first creates the new file, and later tells the writer to open it.
func (t *tail) successor() (*os.File, error) {
	now, err := os.Lstat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	was, err := t.file.Stat()
	if err != nil || os.SameFile(was, now) {
		return nil, err
	}
	next, err := open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info, err := next.Stat(); err != nil || info.Size() == 0 {
		next.Close()
		return nil, err
	}
	return next, nil
}

func (t *tail) close() {
	if t.file != nil {
		t.file.Close()
		t.file = nil
	}
}

// eveRule is the rule for the permissions of eve.json: any user may own the file, because Suricata's user may vary, and a group may write it.
var eveRule = safefile.Rule{Closed: 0o002}

// open opens a file. It refuses a file that others than the owner and the group can write. It does not block on a FIFO, and does not follow a
// symbolic link.
func open(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, &SuricataError{path + " is a symbolic link", "name the file that it leads to", false}
	case errors.Is(err, fs.ErrNotExist):
		return nil, &SuricataError{path + " does not exist", "Suricata makes it: look at eve-log in suricata.yaml. It is followed when it appears", true}
	case errors.Is(err, fs.ErrPermission):
		return nil, &SuricataError{err.Error(), "the daemon has the rights of the user root without CAP_DAC_OVERRIDE: in suricata.yaml set filemode: 644 for eve-log", false}
	case errors.Is(err, unix.ENXIO):
		return nil, &SuricataError{path + " is no regular file", regularHint, false}
	case err != nil:
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = &SuricataError{path + " is no regular file", regularHint, false}
	case eveRule.Breach(info) != "":
		err = &SuricataError{fmt.Sprintf("%s has mode %04o: anybody may write it, and ban whom they like", path, info.Mode().Perm()), "chmod o-w " + path, false}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

const regularHint = "set filetype: regular for eve-log in suricata.yaml, and name its file"

// SuricataError is an error with a remedy.
type SuricataError struct {
	Problem, Remedy string
	missing         bool // the file does not exist
}

func (e *SuricataError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *SuricataError) Hint() string { return e.Remedy }

// Is reports that a file does not exist.
func (e *SuricataError) Is(target error) bool { return e.missing && target == fs.ErrNotExist }
