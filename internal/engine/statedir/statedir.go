// SPDX-License-Identifier: Apache-2.0

package statedir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Error says that an instance uses another state directory.
type Error struct {
	Given string // the directory that the caller named
	Uses  string // the directory that the instance uses
	Who   string // the user of that directory: this instance or its daemon
}

func (e *Error) Error() string {
	return fmt.Sprintf("state directory %s: %s uses %s", e.Given, e.Who, e.Uses)
}

// Hint returns the remedy. The command uses mv -T: without -T, mv would move the directory into an existing directory of the new name.
func (e *Error) Hint() string {
	return fmt.Sprintf("leave --state out, or name %s; to move it, end the daemon, `mv -T %s %s`, and apply with the new --state",
		e.Uses, wording.Shell(e.Uses), wording.Shell(cmp.Or(absolute(e.Given), e.Given)))
}

// Flags returns the flags that select an instance and its state directory, each with a space before it. dir may be "" for the default directory.
func Flags(bpffs, dir string) (text string) {
	if bpffs != datapath.DefaultDir {
		text += " --bpffs " + wording.Shell(bpffs)
	}
	if dir != "" {
		text += " --state " + wording.Shell(dir)
	}
	return text
}

// Of returns the state directory of an instance: the recorded one, or else the one of its daemon. bpffs is the instance's directory in the BPF file
// system. Of returns "" when neither directory exists, as before the first apply. It does not read netfilter or take the lock of the instance, so the
// result stays the same when other tools have removed the policy.
func Of(bpffs string) (string, error) {
	recorded, err := recordOf(bpffs)
	if err != nil {
		return "", err
	}
	for _, dir := range []string{recorded, instance.LockOf(bpffs).State()} {
		if exists(dir) {
			return dir, nil
		}
	}
	return "", nil
}

// Check returns an *Error when the instance, or its daemon, uses another state directory than given. If given is "", any directory is accepted. If
// the recorded directory no longer exists, it was moved or removed, and given may replace it.
func Check(bpffs, given string) error {
	if given == "" {
		return nil
	}
	recorded, err := recordOf(bpffs)
	if err != nil {
		return err
	}
	if exists(recorded) && !same(given, recorded) {
		return &Error{given, recorded, "this instance"}
	}
	if used := instance.LockOf(bpffs).State(); used != "" && !same(given, used) {
		return &Error{given, used, "the daemon that runs"}
	}
	return nil
}

// Missing returns the recorded state directory of an instance if it no longer exists. Then it was removed, or its disk is not mounted. Otherwise
// Missing returns "".
func Missing(bpffs string) (string, error) {
	recorded, err := recordOf(bpffs)
	if err != nil || exists(recorded) {
		return "", err
	}
	return recorded, nil
}

// Keep creates a state directory and records its path. If the directory cannot be created, Keep does not record it. The caller must hold the lock and
// must have called Check. If given is "", Keep does nothing.
func Keep(state *datapath.State, given string) error {
	if given == "" {
		return nil
	}
	if err := os.MkdirAll(given, 0o755); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	recorded, err := state.Directory()
	if err != nil || exists(recorded) && same(given, recorded) {
		return err
	}
	dir, err := filepath.Abs(given) // commands run in any working directory
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	return state.KeepDirectory(dir)
}

// claimWait is the time that Claim waits for a command that changes the instance.
const claimWait = time.Second

// Claim records a state directory for an instance that has not recorded one, for example because an earlier version applied its policy. Claim does
// nothing when nothing is loaded.
func Claim(ctx context.Context, bpffs, given string) error {
	state, err := datapath.OpenState(bpffs, false)
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil
	}
	if err != nil {
		return err
	}
	if recorded, err := state.Directory(); recorded != "" || err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, claimWait)
	defer cancel()
	unlock, err := state.Lock(limited)
	if errors.Is(err, datapath.ErrNotLoaded) || errors.Is(err, datapath.ErrLocked) { // the process that has the lock records the directory, or has unloaded
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if recorded, err := state.Directory(); recorded != "" || err != nil {
		return err
	}
	return Keep(state, given)
}

// recordOf returns the state directory that an instance has recorded. It returns "" if there is none.
func recordOf(bpffs string) (string, error) {
	state, err := datapath.OpenState(bpffs, false)
	if errors.Is(err, datapath.ErrNotLoaded) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return state.Directory()
}

// same reports whether two paths are equal or name the same directory.
func same(a, b string) bool {
	if absolute(a) == absolute(b) && absolute(a) != "" {
		return true
	}
	one, err := os.Stat(a)
	other, failed := os.Stat(b)
	return err == nil && failed == nil && os.SameFile(one, other)
}

// absolute returns the absolute form of a path. It returns "" when the working directory no longer exists.
func absolute(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	return path
}

// exists reports whether a directory exists. It also returns true if it cannot find that out.
func exists(dir string) bool {
	if dir == "" {
		return false
	}
	info, err := os.Stat(dir)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR)
	}
	return info.IsDir()
}
