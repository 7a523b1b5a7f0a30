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

// DamagedError says that a file does not hold what was written, and where it was moved.
type DamagedError struct{ File, Kept, Why string }

func (e *DamagedError) Error() string { return fmt.Sprintf("bans: %s is damaged: %s", e.File, e.Why) }

// Hint says what became of it.
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

// Load reads the entries that go on, of the sets that are wanted. A file that a loss of power has cut short is read up to
// there. Any other damage is a *DamagedError, and moves the file away: what it says of one prefix another line may take back.
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
		if r.End.IsZero() || r.Left(now) > 0 {
			list = append(list, r)
		}
	}
	return list, nil
}

// replay goes through the lines. why says what is damaged.
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
	bad := 0 // the number of the first line that is not whole
	for n := 2; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return entries, "", nil // what is left is half a line
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
