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
	mostLine = 1 << 20  // bytes of a line; Suricata's longest, with payloads of packets, have a few hundred thousand
	chunk    = 64 << 10 // bytes that are read at once
	mostMark = 256      // an event has its time in its first bytes, and is longer than that
)

// tail follows a file that another program appends lines to, and that may be moved away or cut at any time.
type tail struct {
	path  string
	file  *os.File // nil: there is none yet
	at    int64    // bytes of it that were read
	fresh bool     // the file was looked for before: one that appears now is read from its beginning

	mark []byte // the last bytes that were read: a file that was cut and has grown again has others there

	part    []byte // the beginning of a line without its end
	tooLong bool   // the line is not kept
	skipped int    // lines that were too long
	buffer  []byte
}

// read hands all lines that there are to fn, without their ends. A line is valid until fn returns. stop ends it before the end of the file.
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
	// Who wrote has opened the new file by now, so the old one has its last line.
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

// follow begins with a file: at its end when nobody has looked for it before, since its lines are old.
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
		t.tooLong, t.skipped = true, t.skipped-1 // the rest of a line that is old
	}
	return nil
}

// drain reads to the end of the file, and from its beginning when it was cut.
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

// wasCut reports whether the file no longer has what was read of it.
func (t *tail) wasCut() (bool, error) {
	now := make([]byte, len(t.mark))
	_, err := t.file.ReadAt(now, t.at-int64(len(now)))
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return err == nil && !bytes.Equal(now, t.mark), err
}

// split hands on the lines that end in text, and keeps the rest.
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

// successor is the file that has come in place of the one that is followed, nil when there is none. One without content is not
// yet written to: who rotates files makes the new one, and tells the program to open it later.
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

// eveRule is for the file of alerts: it is Suricata's, of whichever user, and a group may write it together.
var eveRule = safefile.Rule{Closed: 0o002}

// open opens a file that nobody but its owner and group can write. It never waits, as an open of a FIFO would, and follows no
// symbolic link, which may lead anywhere.
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

// SuricataError is a refusal with a remedy.
type SuricataError struct {
	Problem, Remedy string
	missing         bool // the file is
}

func (e *SuricataError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *SuricataError) Hint() string { return e.Remedy }

// Is reports that a file does not exist.
func (e *SuricataError) Is(target error) bool { return e.missing && target == fs.ErrNotExist }
