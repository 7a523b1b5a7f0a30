package statedir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Error says that an instance keeps its files in another state directory.
type Error struct {
	Given string // by who asks
	Uses  string // by the instance
	Who   string // uses it
}

func (e *Error) Error() string {
	return fmt.Sprintf("state directory %s: %s uses %s", e.Given, e.Who, e.Uses)
}

// Hint is the remedy. Without -T, mv would put the files below a directory that is there already.
func (e *Error) Hint() string {
	return fmt.Sprintf("leave --state out, or name %s; to move it, end the daemon, `mv -T %s %s`, and apply with the new --state",
		e.Uses, quoted(e.Uses), quoted(cmp.Or(absolute(e.Given), e.Given)))
}

var plain = wording.Regexp(`^[\w/.,:@%+=][\w/.,:@%+=-]*$`)

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if plain().MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Flags are the flags by which a command reaches an instance with its state directory, each after a space. "" stands for the default directory.
func Flags(bpffs, dir string) (text string) {
	if bpffs != datapath.DefaultDir {
		text += " --bpffs " + quoted(bpffs)
	}
	if dir != "" {
		text += " --state " + quoted(dir)
	}
	return text
}

// Of is the state directory of an instance, by its directory in the BPF file system: the recorded one, or else that of its daemon. It is ""
// when neither names a directory that exists, as before the first apply. It asks neither netfilter nor for the lock of the instance, so
// that the answer is the same when others have removed the policy.
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

// Check returns an *Error when the instance, or its daemon, uses another state directory than the given one. "" stands for any. A recorded
// directory that does not exist any more was moved or removed: the given one may take its place.
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

// Missing is the recorded state directory of an instance when it does not exist any more: it was removed, or its disk is not mounted. Else it
// is "".
func Missing(bpffs string) (string, error) {
	recorded, err := recordOf(bpffs)
	if err != nil || exists(recorded) {
		return "", err
	}
	return recorded, nil
}

// Keep makes a state directory, and records it. A directory that cannot be made is not recorded. The caller holds the lock, and has had it
// checked. "" is none.
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
	dir, err := filepath.Abs(given) // commands run anywhere
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	return state.KeepDirectory(dir)
}

// claimWait is how long Claim waits for a command that changes the instance.
const claimWait = time.Second

// Claim records a state directory for an instance that has recorded none, as one that an earlier version applied. Nothing happens when
// nothing is loaded.
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
	if errors.Is(err, datapath.ErrNotLoaded) || errors.Is(err, datapath.ErrLocked) { // who has the lock records it, or has unloaded
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

// recordOf is what an instance has recorded, "" for nothing.
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

// same reports whether two paths lead to the same directory, or are the same.
func same(a, b string) bool {
	if absolute(a) == absolute(b) && absolute(a) != "" {
		return true
	}
	one, err := os.Stat(a)
	other, failed := os.Stat(b)
	return err == nil && failed == nil && os.SameFile(one, other)
}

// absolute is "" when the working directory is gone.
func absolute(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	return path
}

// exists reports whether there is a directory. One that cannot be looked at may be there.
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
