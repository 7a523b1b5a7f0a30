// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"
)

// Follower reads new lines of an instance's file of bans, without taking the file's lock. It reads only complete lines.
type Follower struct {
	log  *Log
	file *os.File
	at   int64 // the offset up to which it was read

	events *os.File // an inotify instance; nil: not made yet
	above  bool     // the inotify watch is on the parent directory, because the directory of the file does not exist yet

	longest time.Duration // the longest time of Wait
}

// Follow returns a Follower that reads the file from its start.
func (l *Log) Follow() *Follower { return &Follower{log: l, longest: longest} }

// Close closes the file and the inotify instance.
func (f *Follower) Close() {
	f.unwatch()
	f.closeFile()
}

func (f *Follower) closeFile() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
}

// maxRead is the largest number of bytes that one Next reads.
const maxRead = 1 << 20

// Next returns the changes since the last call, or nil when there are none. On the first call, and after the file was rewritten, whole is true: Next
// then returns all entries of the file. The Start of such an entry may be the time at which the file was written.
func (f *Follower) Next() (list []Record, whole bool, err error) {
	if f.file == nil {
		list, err = f.open()
		return list, list != nil, err
	}
	if list, err = f.read(); err != nil || list != nil {
		return list, false, err
	}
	if is, err := f.replaced(); err != nil || !is {
		return nil, false, err
	}
	f.closeFile() // it was read to its end just now
	list, err = f.open()
	return list, list != nil, err
}

// open opens the file that is now at the path, and reads its entries.
func (f *Follower) open() ([]Record, error) {
	if err := f.log.check(); err != nil {
		return nil, err
	}
	file, err := os.Open(f.log.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bans: %w", err)
	}
	f.file, f.at = file, 0
	entries := map[key]Record{}
	for {
		list, err := f.read()
		if err != nil {
			f.closeFile()
			return nil, err
		}
		if list == nil {
			return slices.AppendSeq([]Record{}, maps.Values(entries)), nil
		}
		for _, r := range list {
			if r.Gone {
				delete(entries, key{r.Set, r.Prefix})
			} else {
				entries[key{r.Set, r.Prefix}] = r
			}
		}
	}
}

// replaced reports whether another file is now at the path.
func (f *Follower) replaced() (bool, error) {
	named, err := os.Stat(f.log.file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("bans: %w", err)
	}
	is, err := f.file.Stat()
	if err != nil {
		return false, fmt.Errorf("bans: %w", err)
	}
	return !os.SameFile(named, is), nil
}

// read reads complete lines from the last offset. If the file has become shorter, it has lost only changes that were not written completely.
func (f *Follower) read() ([]Record, error) {
	info, err := f.file.Stat()
	if err != nil {
		return nil, fmt.Errorf("bans: %w", err)
	}
	if f.at = min(f.at, info.Size()); f.at == info.Size() {
		return nil, nil
	}
	text := make([]byte, min(info.Size()-f.at, maxRead))
	n, err := f.file.ReadAt(text, f.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("bans: %w", err)
	}
	text = text[:bytes.LastIndexByte(text[:n], '\n')+1]
	if f.at += int64(len(text)); len(text) == 0 {
		return nil, nil
	}
	list := []Record{}
	for line := range bytes.Lines(text) {
		if r, ok := parseRecord(bytes.TrimSuffix(line, []byte("\n"))); ok {
			list = append(list, r)
		}
	}
	return list, nil
}
