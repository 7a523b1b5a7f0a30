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
)

// Follower reads what is added to the file of an instance, without its lock: whole lines only.
type Follower struct {
	log  *Log
	file *os.File
	at   int64 // up to where it was read

	events *os.File // an inotify instance, nil: none yet
	above  bool     // it watches the directory above that of the file, which is not there
}

// Follow follows the file from its start.
func (l *Log) Follow() *Follower { return &Follower{log: l} }

// Close ends it.
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

// maxRead is how much one Next reads, in bytes.
const maxRead = 1 << 20

// Next returns the changes since it was called last, nil when there are none. At first, and after the file was written anew, whole is
// true: then it returns the entries that the file has, and not how they came to be. Their Start may be the time of writing.
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
	f.closeFile() // its end was read just now
	list, err = f.open()
	return list, list != nil, err
}

// open opens the file that has the name now, and reads its entries.
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

// replaced tells whether the name has another file now.
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

// read reads whole lines from where it was. A file that has become shorter lost changes that could not be written whole.
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
