// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// header is the first line: the format, the size of the file when it was rewritten, and the clock at that time.
type header struct {
	size   int64
	boot   string // the boot ID of the machine
	offset int64  // the wall clock minus the time since boot, in seconds
}

const (
	format     = 1
	headerText = "floodwall-bans %d size=%012d boot=%s offset=%d\n"
)

func (h header) text() string { return fmt.Sprintf(headerText, format, h.size, h.boot, h.offset) }

func parseHeader(line []byte) (h header, why string) {
	var found int
	if n, err := fmt.Sscanf(string(line), "floodwall-bans %d", &found); n != 1 || err != nil {
		return h, "it does not begin as one"
	}
	if found != format {
		return h, fmt.Sprintf("it has format %d, and this floodwall knows format %d", found, format)
	}
	if _, err := fmt.Sscanf(string(line), headerText, &found, &h.size, &h.boot, &h.offset); err != nil {
		return h, "its first line"
	}
	return h, ""
}

// clock returns the boot ID, and the wall clock minus the time since boot. A change of this difference means that the wall clock was set.
func clock() (boot string, offset int64) {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	boot = strings.TrimSpace(string(text))
	if boot == "" {
		boot = none
	}
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // does not fail with this clock
	return boot, time.Now().Unix() - t.Sec
}

// The file is rewritten when it is larger than growth times the size in its header plus growthMin bytes. It is also rewritten when the clock was set
// by more than stepMin seconds, which makes the ends in the file wrong.
const (
	growth    = 4
	growthMin = 4 << 20
	stepMin   = 5
)

// Due reports whether the file must be rewritten with Rewrite.
func (l *Log) Due() bool {
	h, size, why := l.header()
	return size >= 0 && (why != "" || size > growth*h.size+growthMin || h.moved())
}

// ClockMoved reports whether the clock was set, or the machine restarted, since the file was rewritten. The ends in the file are then wrong.
func (l *Log) ClockMoved() bool {
	h, size, why := l.header()
	return size >= 0 && why == "" && h.moved()
}

// header reads the first line of the file, and the size of the file: -1 when there is no file.
func (l *Log) header() (h header, size int64, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.Open(l.file)
	if err != nil {
		return h, -1, ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return h, -1, ""
	}
	line, _ := bufio.NewReader(f).ReadBytes('\n')
	h, why = parseHeader(line)
	return h, info.Size(), why
}

// moved reports whether the clock was set, or the machine restarted, since the file was rewritten.
func (h header) moved() bool {
	boot, offset := clock()
	return h.boot != boot || max(offset-h.offset, h.offset-offset) > stepMin
}

// Rewrite replaces the file. For the sets that held reports, it writes entries. For all other sets it copies the entries of the old file, because a
// later policy may have these sets again.
func (l *Log) Rewrite(held func(set string) bool, entries iter.Seq[Record]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.make(); err != nil {
		return err
	}
	others, err := l.load(func(set string) bool { return !held(set) })
	if err != nil {
		others = nil // the file was damaged, and load has moved it away
	}
	return l.rewrite(entries, others)
}

// rewrite atomically replaces the file by one with the records of entries and more.
func (l *Log) rewrite(entries iter.Seq[Record], more []Record) error {
	h := header{}
	h.boot, h.offset = clock()
	err := safefile.ReplaceWith(l.file, 0o600, func(f *os.File) error { return h.write(f, entries, more) })
	if err != nil {
		return fmt.Errorf("bans: %w", err)
	}
	l.synced, l.dirty, l.failed = time.Now(), false, nil
	if err := os.Remove(l.file + behindSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("bans: %w", err)
	}
	return nil
}

// write writes the header and the records to a file.
func (h header) write(f *os.File, entries iter.Seq[Record], more []Record) error {
	out := bufio.NewWriterSize(f, 1<<20)
	text := []byte(h.text())
	first := len(text)
	out.Write(text)
	add := func(r Record) {
		text = appendRecord(text[:0], r)
		h.size += int64(len(text))
		out.Write(text) // Flush returns the error of this write
	}
	if entries != nil {
		for r := range entries {
			add(r)
		}
	}
	for _, r := range more {
		add(r)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	text = []byte(h.text())
	if len(text) != first || bytes.Count(text, []byte("\n")) != 1 {
		return fmt.Errorf("the first line has changed its length")
	}
	_, err := f.WriteAt(text, 0)
	return err
}
