// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Errors of Store.
var (
	ErrNone = errors.New("no policy is saved for boot")
	ErrGone = errors.New("the policy that runs now is not saved for boot")
	ErrBusy = errors.New("another floodwall is saving its policy for boot")
)

// The links in a store, and the temporary name of a new link.
const (
	current  = "current"
	previous = "previous"
	trial    = "trial"
	passing  = ".link"
)

// lockWait is the time that a command waits for another command that changes the store.
const lockWait = 10 * time.Second

// copyName matches the names of directories of copies.
var copyName = wording.Regexp(`^c[0-9a-f]{16}$`)

// Store is the directory of copies. The directory need not exist.
type Store struct{ dir string }

// Open returns the store in a state directory.
func Open(state string) Store { return Store{filepath.Join(state, "boot")} }

// Enabled reports whether a policy is loaded after a reboot. This is so from the first saved copy until Remove.
func (s Store) Enabled() bool { return s.target(current) != "" }

// Use makes the copy with an id the current one. It is called when a trial was confirmed, or after a rollback to the policy of the copy. It returns
// ErrGone when there is no such copy.
func (s Store) Use(ctx context.Context, id string) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if !copyName().MatchString(id) {
		return ErrGone
	}
	if _, err := os.Stat(s.path(id, manifestFile)); err != nil {
		return ErrGone
	}
	return s.use(id)
}

// Remove removes all copies. After that no policy is loaded after a reboot.
func (s Store) Remove(ctx context.Context) error {
	if _, err := os.Lstat(s.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Remove(s.path(current)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the policy saved for boot: %w", err)
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("removing the policy saved for boot: %w", err)
	}
	return nil
}

func (s Store) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

// target returns the id of the copy to which a link points. It returns "" if there is none.
func (s Store) target(link string) string {
	id, err := os.Readlink(s.path(link))
	if err != nil || !copyName().MatchString(id) {
		return ""
	}
	return id
}

// use is Use with the lock held. It also ends a trial, which may be the trial of this copy or of another one.
func (s Store) use(id string) error {
	if was := s.target(current); was != id {
		if was != "" {
			if err := s.link(previous, was); err != nil {
				return err
			}
		}
		if err := s.link(current, id); err != nil {
			return err
		}
	}
	if err := s.unlink(trial); err != nil {
		return err
	}
	s.prune("")
	return syncDir(s.dir)
}

// link makes a link point to a copy.
func (s Store) link(name, id string) error {
	if err := s.unlink(passing); err != nil {
		return err
	}
	if err := os.Symlink(id, s.path(passing)); err != nil {
		return fmt.Errorf("saving the policy for boot: %w", err)
	}
	if err := os.Rename(s.path(passing), s.path(name)); err != nil {
		return fmt.Errorf("saving the policy for boot: %w", err)
	}
	return syncDir(s.dir)
}

func (s Store) unlink(name string) error {
	if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("saving the policy for boot: %w", err)
	}
	return nil
}

// prune removes the copies to which no link points, except the copy `except`. These are copies of processes that died, and old copies. prune ignores
// errors: a remaining copy only takes space, and the next call removes it.
func (s Store) prune(except string) {
	entries, _ := os.ReadDir(s.dir)
	for _, e := range entries {
		switch name := e.Name(); {
		case !copyName().MatchString(name), name == except:
		case name == s.target(current), name == s.target(previous), name == s.target(trial):
		default:
			os.RemoveAll(s.path(name))
		}
	}
}

// lock prevents other processes from changing the store until unlock is called or this process ends.
func (s Store) lock(ctx context.Context) (unlock func(), err error) {
	limited, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err = safefile.Lock(limited, s.dir, s.make)
	switch {
	case !errors.Is(err, safefile.ErrTaken):
		return unlock, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, ErrBusy
}

// make creates the directory. Only its owner can open it, because policies contain the addresses that the operator trusts.
func (s Store) make() error {
	if err := os.MkdirAll(filepath.Dir(s.dir), 0o755); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("boot directory: %w", err)
	}
	err := s.check()
	if errors.Is(err, os.ErrNotExist) {
		return nil // another process has removed the directory; the lock detects that
	}
	if err != nil {
		return err
	}
	if err := os.Chmod(s.dir, 0o700); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("boot directory: %w", err)
	}
	return nil
}

// check returns an error if another user could have written into the directory, because its content becomes this host's firewall.
func (s Store) check() error {
	info, err := os.Lstat(s.dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", s.dir)
	}
	rule := safefile.Rule{Owners: []int{os.Geteuid()}, Closed: safefile.ToWriters} // not root for another user: make sets the mode
	if cause := rule.Breach(info); cause != "" {
		return fmt.Errorf("%s %s", s.dir, cause)
	}
	return nil
}

// syncDir waits until the names in a directory are on the disk.
func syncDir(path string) error {
	if err := safefile.SyncDir(path); err != nil {
		return fmt.Errorf("saving the policy for boot: %w", err)
	}
	return nil
}
