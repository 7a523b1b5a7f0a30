package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/os/safefile"
)

// Store is the directory in which the copies are, each in a directory of its own:
//
//	copy    the last good copy
//	held    a list that shrank or grew too much, until Accept
//	state   when it is fetched next, and what went wrong
//
// Each file is replaced as a whole. A process that dies leaves the old one or the new one.
type Store struct{ Dir string }

// The files.
const (
	copyFile  = "copy"
	heldFile  = "held"
	stateFile = "state"
)

// InState is the store in a state directory of Floodwall.
func InState(dir string) Store { return Store{filepath.Join(dir, "feeds")} }

func (st Store) file(s Source, name string) string { return filepath.Join(st.Dir, s.key(), name) }

// state is what is kept of a source beside its copies.
type state struct {
	Checked  time.Time `json:"checked"`            // that the copy is the newest; zero: never
	Next     time.Time `json:"next"`               // fetch
	Failures int       `json:"failures,omitempty"` // in a row
	Error    string    `json:"error,omitempty"`    // of the last fetch
	Wait     time.Time `json:"wait"`               // until which the server asked to be left alone
}

// readState reads the state; one that cannot be read is that of a source that was never fetched.
func (st Store) readState(s Source) (known state) {
	text, err := os.ReadFile(st.file(s, stateFile))
	if err != nil || json.Unmarshal(text, &known) != nil {
		return state{}
	}
	known.plausible(s, time.Now())
	return known
}

// clockSlack is how far ahead a time of the past may be: clocks are set back a little.
const clockSlack = time.Minute

// ahead reports whether a time that should be past is not: the clock was wrong then, or is wrong now.
func ahead(t, now time.Time) bool { return t.After(now.Add(clockSlack)) }

// plausible forgets the times that Refresh would not write now. They were written while the clock was wrong, or for a longer
// period, and would stop the list until then.
func (known *state) plausible(s Source, now time.Time) {
	if known.Wait.After(now.Add(longestWait + clockSlack)) {
		known.Wait = time.Time{}
	}
	last := now.Add(s.Every + s.Every/10 + clockSlack)
	if known.Wait.After(last) {
		last = known.Wait
	}
	if known.Next.After(last) || ahead(known.Checked, now) {
		known.Next = time.Time{}
	}
	if ahead(known.Checked, now) {
		known.Checked = time.Time{}
	}
}

func (st Store) writeState(s Source, known state) error {
	text, err := json.Marshal(known)
	if err == nil {
		err = safefile.Replace(st.file(s, stateFile), text, 0o600)
	}
	return st.about(s, err)
}

// about says which set an error is about.
func (st Store) about(s Source, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("set %q: %w", s.Set, err)
}

// check makes sure that nobody else can have written what is kept of a source: copies decide what is dropped.
func (st Store) check(s Source) error {
	for _, path := range []string{st.Dir, filepath.Dir(st.file(s, copyFile)), st.file(s, copyFile), st.file(s, heldFile), st.file(s, stateFile)} {
		if err := safefile.Ours(path); err != nil {
			return st.about(s, err)
		}
	}
	return nil
}

// Copy is the last good copy of a source, nil when there is none. One that is damaged counts as none. One that another user can have
// written is an error.
func (st Store) Copy(s Source) (*Copy, *addrs.Set, error) {
	if err := st.check(s); err != nil {
		return nil, nil, err
	}
	c, set, err := readCopy(st.file(s, copyFile))
	if errors.Is(err, errDamaged) {
		return nil, nil, nil
	}
	return c, set, st.about(s, err)
}

// lock keeps other processes from changing what is kept of a source.
func (st Store) lock(ctx context.Context, s Source) (unlock func(), err error) {
	if err := st.check(s); err != nil {
		return nil, err
	}
	dir := filepath.Dir(st.file(s, copyFile))
	unlock, err = safefile.Lock(ctx, dir, func() error { return os.MkdirAll(dir, 0o700) })
	return unlock, st.about(s, err)
}

// Accept puts the list that is held into the place of the copy. It returns false when none is held.
func (st Store) Accept(ctx context.Context, s Source) (accepted bool, err error) {
	unlock, err := st.lock(ctx, s)
	if err != nil {
		return false, err
	}
	defer unlock()
	held := st.file(s, heldFile)
	if c, err := readHead(held); c == nil || err != nil {
		return false, st.about(s, err)
	}
	err = os.Rename(held, st.file(s, copyFile))
	if err == nil {
		err = safefile.SyncDir(filepath.Dir(held))
	}
	return err == nil, st.about(s, err)
}

// Mark tells the copy of a source from those before and after it; "" when there is none.
func (st Store) Mark(s Source) (string, error) {
	if err := st.check(s); err != nil {
		return "", err
	}
	c, err := readHead(st.file(s, copyFile))
	if c == nil || errors.Is(err, errDamaged) {
		return "", nil
	}
	return fmt.Sprintf("%d entries, %08x", c.Entries, c.Content), st.about(s, err)
}
