// SPDX-License-Identifier: Apache-2.0

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

// Store is the directory of the copies. Each source has a directory of its own:
//
//	copy    the last good copy
//	held    a list that shrank or grew too much, until Accept
//	state   when it is fetched next, and what went wrong
//
// Each file is replaced as a whole. A process that dies leaves the old one or the new one.
type Store struct{ Dir string }

// The names of the files.
const (
	copyFile  = "copy"
	heldFile  = "held"
	stateFile = "state"
)

// InState returns the store in a state directory of Floodwall.
func InState(dir string) Store { return Store{filepath.Join(dir, "feeds")} }

func (st Store) file(s Source, name string) string { return filepath.Join(st.Dir, s.key(), name) }

// state is the stored state of a source, apart from its copies.
type state struct {
	Checked  time.Time `json:"checked"`            // when the copy was last known to be the newest; zero: never
	Next     time.Time `json:"next"`               // the time of the next fetch
	Failures int       `json:"failures,omitempty"` // consecutive ones
	Error    string    `json:"error,omitempty"`    // of the last fetch
	Wait     time.Time `json:"wait"`               // the end of the wait that the server asked for
}

// readState reads the state. If it cannot be read, readState returns the state of a source that was never fetched.
func (st Store) readState(s Source) (known state) {
	text, err := os.ReadFile(st.file(s, stateFile))
	if err != nil || json.Unmarshal(text, &known) != nil {
		return state{}
	}
	known.plausible(s, time.Now())
	return known
}

// clockSlack is the largest time by which a recorded time may be in the future, because clocks are sometimes set back a little.
const clockSlack = time.Minute

// ahead reports whether a recorded time is in the future. Then the clock was wrong when the time was recorded, or is wrong now.
func ahead(t, now time.Time) bool { return t.After(now.Add(clockSlack)) }

// plausible clears times that are too far in the future. They were recorded while the clock was wrong, or while the period was longer. If they
// stayed, the list would not be fetched until then.
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

// about adds the name of the set to an error.
func (st Store) about(s Source, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("set %q: %w", s.Set, err)
}

// check returns an error if another user may have written a file of a source, because copies decide which packets are dropped.
func (st Store) check(s Source) error {
	for _, path := range []string{st.Dir, filepath.Dir(st.file(s, copyFile)), st.file(s, copyFile), st.file(s, heldFile), st.file(s, stateFile)} {
		if err := safefile.Ours(path); err != nil {
			return st.about(s, err)
		}
	}
	return nil
}

// Copy returns the last good copy of a source. It returns nil if there is none, or if the copy is damaged. If another user may have written the copy,
// Copy returns an error.
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

// lock prevents other processes from changing the files of a source, until unlock is called.
func (st Store) lock(ctx context.Context, s Source) (unlock func(), err error) {
	if err := st.check(s); err != nil {
		return nil, err
	}
	dir := filepath.Dir(st.file(s, copyFile))
	unlock, err = safefile.Lock(ctx, dir, func() error { return os.MkdirAll(dir, 0o700) })
	return unlock, st.about(s, err)
}

// Accept replaces the copy by the held list. accepted is false if no list is held.
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

// Mark returns a text that identifies the present copy of a source. It returns "" if there is no copy.
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
