// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"
)

// DamagedError says that the content of a file is damaged, why, and to which path the file was moved.
type DamagedError struct{ File, Kept, Why string }

func (e *DamagedError) Error() string { return fmt.Sprintf("bans: %s is damaged: %s", e.File, e.Why) }

// Hint says where the damaged file is kept.
func (e *DamagedError) Hint() string {
	return "none of its entries is entered; it is kept as " + e.Kept + ", one entry a line"
}

const (
	damagedSuffix = ".damaged"
	newSuffix     = ".new"
)

type key struct {
	set    string
	prefix netip.Prefix
}

// Load returns the entries of the wanted sets that have not expired. If a power failure has cut the file short, Load reads it up to the cut. For any
// other damage Load moves the file away and returns a *DamagedError: a damaged line could be the one that lifts a ban of an earlier line.
func (l *Log) Load(wanted func(set string) bool) ([]Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.load(wanted)
}

func (l *Log) load(wanted func(set string) bool) ([]Record, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	f, err := os.Open(l.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bans: %w", err)
	}
	defer f.Close()
	entries, why, err := replay(f, wanted)
	if err != nil {
		return nil, fmt.Errorf("bans: %w", err)
	}
	if why != "" {
		kept := l.file + damagedSuffix
		if err := os.Rename(l.file, kept); err != nil {
			return nil, fmt.Errorf("bans: %w", err)
		}
		return nil, &DamagedError{l.file, kept, why}
	}
	now := time.Now()
	var list []Record
	for _, r := range entries {
		if r.Left(now) > 0 {
			list = append(list, r)
		}
	}
	return list, nil
}

// replay applies the lines in order, and returns the resulting entries. why says which part is damaged; it is "" if nothing is.
func replay(f io.Reader, wanted func(string) bool) (entries map[key]Record, why string, err error) {
	entries = map[key]Record{}
	in := bufio.NewReaderSize(f, 1<<16)
	first, err := in.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, "", err
	}
	if _, why := parseHeader(first); why != "" {
		return nil, why, nil
	}
	bad := 0 // the number of the first damaged line
	for n := 2; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return entries, "", nil // a last line without an end is incomplete
		}
		if err != nil {
			return nil, "", err
		}
		r, ok := parseRecord(bytes.TrimSuffix(line, []byte("\n")))
		switch {
		case !ok && bad == 0:
			bad = n
		case ok && bad > 0:
			return nil, fmt.Sprintf("line %d", bad), nil
		case ok && wanted(r.Set) && r.Gone:
			delete(entries, key{r.Set, r.Prefix})
		case ok && wanted(r.Set):
			entries[key{r.Set, r.Prefix}] = r
		}
	}
}
