// SPDX-License-Identifier: Apache-2.0

// This file stores the entries of dynamic sets across a reboot, in a file of the state directory. A change appends a line, so that it need not
// rewrite a million entries. When the file has become much larger than its entries need, the process that writes to it rewrites it from the entries
// in the kernel.
//
// Ends are stored as wall-clock times in UTC, since no other clock continues across a reboot. Each entry also has the time at which it was written.
// When the clock is earlier than that time, it is wrong. The entry then has the time left that it had when it was written.
//
// The caller must hold a lock that keeps other processes from the file.

package ban

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// Record is a line of the file: an entry of a set, or the removal of an entry.
type Record struct {
	Ban
	Gone  bool      // whether the entry was removed
	Start time.Time // when this record was written
}

// Left returns the time from now to the end of an entry. It is negative when the entry has ended.
func (r Record) Left(now time.Time) time.Duration {
	if now.Before(r.Start) {
		now = r.Start
	}
	return r.Until.Sub(now)
}

// at returns the entry with its end computed from the time left and the clock reading now.
func (r Record) at(now time.Time) Ban {
	if r.Until != Never {
		r.Until = now.Add(r.Left(now))
	}
	return r.Ban
}

// Log is the file of bans of an instance. The file need not exist.
type Log struct {
	file string

	mu     sync.Mutex
	synced time.Time // when the last fsync was done
	dirty  bool      // whether a change was written after the last fsync
	failed error     // the error of the last Append that failed, until Sync has returned it
}

// OpenLog returns the file of bans of an instance in a state directory. bpffs is the directory of the instance in the BPF file system. If bpffs is
// the directory standard, the file name has no suffix. OpenLog does not open the file.
func OpenLog(state, bpffs, standard string) *Log {
	name := "bans"
	if dir := filepath.Clean(bpffs); dir != standard {
		h := fnv.New32a()
		h.Write([]byte(dir))
		name = fmt.Sprintf("bans-%08x", h.Sum32())
	}
	return &Log{file: filepath.Join(state, "bans", name)}
}

// syncEvery is the shortest time between two fsyncs while many changes are appended.
const syncEvery = time.Second

// Append appends changes. It does an fsync before it returns, unless the last fsync was less than a second ago. Then the changes reach the disk at
// the next Sync.
func (l *Log) Append(records []Record) error {
	if len(records) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.append(records)
	if err != nil {
		l.failed = err
		os.WriteFile(l.file+behindSuffix, nil, 0o600) // an empty file takes no space
	}
	return err
}

// behindSuffix ends the name of a file that exists while the log lacks changes.
const behindSuffix = ".behind"

// Behind reports whether an Append of any process has failed since the file was last rewritten. Rewrite adds the missing changes.
func (l *Log) Behind() bool {
	_, err := os.Lstat(l.file + behindSuffix)
	return err == nil
}

func (l *Log) append(records []Record) error {
	if err := l.make(); err != nil {
		return err
	}
	f, err := os.OpenFile(l.file, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, os.ErrNotExist) {
		return l.rewrite(nil, records)
	}
	if err != nil {
		return fmt.Errorf("bans: %w", err)
	}
	defer f.Close()
	if err := mendTail(f); err != nil {
		return fmt.Errorf("bans: %w", err)
	}
	var text []byte
	for _, r := range records {
		text = appendRecord(text, r)
	}
	before, err := f.Seek(0, 2)
	if err == nil {
		_, err = f.Write(text)
	}
	if err != nil {
		return fmt.Errorf("bans: %w", errors.Join(err, f.Truncate(before), l.strike(records)))
	}
	l.dirty = true
	return l.sync(f, false)
}

// Sync does an fsync if changes were appended after the last one. If an Append has failed after the last Sync, Sync returns that error instead.
func (l *Log) Sync() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		err, l.failed = l.failed, nil
		return err
	}
	if !l.dirty {
		return nil
	}
	f, err := os.Open(l.file)
	if err != nil {
		return fmt.Errorf("bans: %w", err)
	}
	defer f.Close()
	return l.sync(f, true)
}

func (l *Log) sync(f *os.File, now bool) error {
	if !now && time.Since(l.synced) < syncEvery {
		return nil
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("bans: %w", err)
	}
	l.synced, l.dirty = time.Now(), false
	return nil
}

// Remove deletes the file with all entries.
func (l *Log) Remove() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirty = false
	safefile.Sweep(filepath.Dir(l.file))
	for _, file := range []string{l.file, l.file + behindSuffix, l.file + damagedSuffix, l.file + countsSuffix, l.file + countsSuffix + newSuffix} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("bans: %w", err)
		}
	}
	os.Remove(filepath.Dir(l.file)) // fails if another instance has a file there
	return nil
}

// make creates the directory, which only its owner can open.
func (l *Log) make() error {
	dir := filepath.Dir(l.file)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("bans: %w", err)
	}
	return l.check()
}

// check returns an error if another user could have written the file, because it decides which addresses are blocked.
func (l *Log) check() error {
	for _, path := range []string{filepath.Dir(l.file), l.file} {
		if err := safefile.Ours(path); err != nil {
			return fmt.Errorf("bans: %w", err)
		}
	}
	return nil
}
