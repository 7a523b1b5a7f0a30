package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/floodwall/floodwall/internal/daemonlock"
	"github.com/floodwall/floodwall/internal/datapath"
)

// Bans, lists, copies for boot and reports of one instance are kept in one directory. Two programs that use two directories for the same
// instance would each take the changes of the other for losses. So the manifest has the directory, and the lock of the daemon has
// the daemon's, which may have begun before anything was applied.

// StateDirError says that the instance keeps its files in another state directory.
type StateDirError struct {
	Given string // by who asks
	Uses  string // by the instance
	Who   string // uses it
}

func (e *StateDirError) Error() string {
	return fmt.Sprintf("state directory %s: %s uses %s", e.Given, e.Who, e.Uses)
}

// Hint is the remedy.
func (e *StateDirError) Hint() string {
	return fmt.Sprintf("leave --state out, or name %s; to move it, end the daemon, `mv %s %s`, and apply with the new --state", e.Uses, e.Uses, e.Given)
}

// StateDir is the state directory of an instance, by its directory in the BPF file system: that which is recorded for what runs, or else that of
// its daemon. It is "" when neither says one that there is, as before the first apply.
func StateDir(ctx context.Context, dir string) string {
	in := Instance{Dir: dir}
	if l, err := in.open(ctx); err == nil {
		defer l.close()
		if recorded := l.generations[0].manifest.State; exists(recorded) {
			return recorded
		}
	}
	if used := in.daemonState(); exists(used) {
		return used
	}
	return ""
}

// CheckState returns a *StateDirError when what runs was applied with another state directory.
func (in Instance) CheckState(ctx context.Context) error {
	m, err := in.Manifest(ctx)
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil
	}
	if err != nil {
		return err
	}
	return in.keepsIn(m.State)
}

// keepsIn returns a *StateDirError when a state directory that was recorded is another one than this one. One that is not there any more
// was moved, and binds nobody.
func (in Instance) keepsIn(recorded string) error {
	if in.State == "" || recorded == "" || sameDir(in.State, recorded) || !exists(recorded) {
		return nil
	}
	return &StateDirError{in.State, recorded, "the policy that runs"}
}

// mayRecord returns a *StateDirError when a policy must not be applied with this state directory.
func (in Instance) mayRecord(now *running) error {
	if now.generation != nil {
		if err := in.keepsIn(now.generation.manifest.State); err != nil {
			return err
		}
	}
	if used := in.daemonState(); in.State != "" && used != "" && !sameDir(in.State, used) {
		return &StateDirError{in.State, used, "the daemon that runs"}
	}
	return nil
}

// daemonState is the state directory of the daemon that runs for the instance, "" when none runs or it does not say.
func (in Instance) daemonState() string { return daemonlock.Of(in.Dir).State() }

// stateDir is the state directory to record: absolute, as commands run anywhere.
func (in Instance) stateDir() string {
	if in.State == "" {
		return ""
	}
	dir, err := filepath.Abs(in.State)
	if err != nil { // the working directory is gone
		return ""
	}
	return dir
}

// sameDir reports whether two paths lead to the same directory, or are the same.
func sameDir(a, b string) bool {
	one, err := filepath.Abs(a)
	other, failed := filepath.Abs(b)
	if err == nil && failed == nil && one == other {
		return true
	}
	first, err := os.Stat(a)
	second, failed := os.Stat(b)
	return err == nil && failed == nil && os.SameFile(first, second)
}

// exists reports whether there is a directory, as far as can be told.
func exists(dir string) bool {
	if dir == "" {
		return false
	}
	_, err := os.Stat(dir)
	return !errors.Is(err, fs.ErrNotExist)
}
