// This file keeps the entries of dynamic sets over a reboot, in a file of the state directory. A change is appended;
// when the file has become much larger than what it says, who writes it writes it anew, from what the kernel holds. So a
// million entries are not written again for each that comes.
//
// Ends are written as times of the wall clock in UTC, as no other goes on over a reboot. Each entry has the time at which it
// was written beside it: when the clock says less than that, it is wrong, and the entry lasts as long as it then had.
//
// Whoever calls has a lock that keeps others from the file.

package ban

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// Record is an entry of a set, or that it was removed.
type Record struct {
	Set    string
	Prefix netip.Prefix
	Gone   bool      // it was removed
	Start  time.Time // when this was written
	End    time.Time // zero: it has none
	Auto   bool      // a limit entered it, and nobody by hand
	Why    string
}

// Left is how long an entry goes on at a time; negative when it has ended. It has no meaning without an End.
func (r Record) Left(now time.Time) time.Duration {
	if now.Before(r.Start) {
		now = r.Start
	}
	return r.End.Sub(now)
}

// Log is the file of an instance. It need not exist.
type Log struct {
	file string

	mu     sync.Mutex
	synced time.Time // when the disk was last waited for
	dirty  bool      // something was written since
	failed error     // of the last Append that did, until Sync has told it
}

// OpenLog names the file of an instance, known by its directory in the BPF file system, in a state directory. standard is the
// directory of an instance that needs no name of its own.
func OpenLog(state, bpffs, standard string) *Log {
	name := "bans"
	if dir := filepath.Clean(bpffs); dir != standard {
		h := fnv.New32a()
		h.Write([]byte(dir))
		name = fmt.Sprintf("bans-%08x", h.Sum32())
	}
	return &Log{file: filepath.Join(state, "bans", name)}
}

// syncEvery is how often the disk is waited for at most, while many changes come.
const syncEvery = time.Second

// Append adds changes. They are on the disk when it returns, unless the last time that it waited for the disk was less than
// a second ago: then Sync does that.
func (l *Log) Append(records []Record) error {
	if len(records) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.append(records)
	if err != nil {
		l.failed = err
		os.WriteFile(l.file+behindSuffix, nil, 0o600) // takes no space
	}
	return err
}

// behindSuffix ends the name of a file that is there while the log lacks changes.
const behindSuffix = ".behind"

// Behind reports whether an Append has failed, of whatever process, since the file was written whole: Rewrite brings in what it lacks.
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

// Sync waits until all that was appended is on the disk. It returns the error of an Append since the last Sync, if one failed.
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

// Remove forgets all entries.
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
	os.Remove(filepath.Dir(l.file)) // only when no other instance has a file there
	return nil
}

// make makes the directory, closed to all but its owner.
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

// check makes sure that nobody else could have written the file: it says who may come in.
func (l *Log) check() error {
	for _, path := range []string{filepath.Dir(l.file), l.file} {
		if err := safefile.Ours(path); err != nil {
			return fmt.Errorf("bans: %w", err)
		}
	}
	return nil
}
