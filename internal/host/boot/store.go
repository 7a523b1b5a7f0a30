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

// The links of a store, and a name that passes into one of them.
const (
	current  = "current"
	previous = "previous"
	trial    = "trial"
	passing  = ".link"
)

// lockWait is how long a command waits for another one that changes the store.
const lockWait = 10 * time.Second

// copyName is what the directories of copies are called.
var copyName = wording.Regexp(`^c[0-9a-f]{16}$`)

// Store is the directory of copies. It need not exist.
type Store struct{ dir string }

// Open names the store in a state directory.
func Open(state string) Store { return Store{filepath.Join(state, "boot")} }

// Enabled reports whether a policy comes back after a reboot: from the first one that was saved until Remove.
func (s Store) Enabled() bool { return s.target(current) != "" }

// Use makes the copy with this id the one that comes back, and no other: after a trial was confirmed, or after a
// rollback to the policy that the copy is of. It is ErrGone when there is no such copy.
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

// Remove forgets all copies: nothing comes back.
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

// target is the copy that a link names, or "".
func (s Store) target(link string) string {
	id, err := os.Readlink(s.path(link))
	if err != nil || !copyName().MatchString(id) {
		return ""
	}
	return id
}

// use is Use for who holds the lock. A trial ends with it, whether it is the one that was confirmed or another.
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

// link makes a link name the copy.
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

// prune removes the copies that no link names, except for one: remains of processes that died, and what is obsolete.
// A copy that stays costs only space, so that errors are left to the next one who prunes.
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

// lock keeps others from changing the store until unlock is called, or this process ends.
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

// make makes the directory, closed to all but its owner: policies say whom the operator trusts.
func (s Store) make() error {
	if err := os.MkdirAll(filepath.Dir(s.dir), 0o755); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("boot directory: %w", err)
	}
	err := s.check()
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed by another process; the lock sees it
	}
	if err != nil {
		return err
	}
	if err := os.Chmod(s.dir, 0o700); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("boot directory: %w", err)
	}
	return nil
}

// check makes sure that nobody else could have written what is in the directory: it becomes this host's firewall.
func (s Store) check() error {
	info, err := os.Lstat(s.dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", s.dir)
	}
	rule := safefile.Rule{Owners: []int{os.Geteuid()}, Closed: safefile.ToWriters} // not root for another user: make gives it its mode
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
