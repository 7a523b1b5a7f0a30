// Package statedir keeps two programs from using two state directories for one instance. Bans, lists, copies for boot and reports are kept
// there, so each program would take the changes of the other for losses.
package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// Hint is the remedy.
func (e *Error) Hint() string {
	return fmt.Sprintf("leave --state out, or name %s; to move it, end the daemon, `mv %s %s`, and apply with the new --state", e.Uses, e.Uses, e.Given)
}

// Check returns an *Error when the state directory that was recorded for the policy that runs is another one than that which is given. One
// that is not there any more was moved, and binds nobody. "" stands for any.
func Check(given, recorded string) error {
	if given == "" || recorded == "" || Same(given, recorded) || !Exists(recorded) {
		return nil
	}
	return &Error{given, recorded, "the policy that runs"}
}

// CheckDaemon returns an *Error when the daemon that runs uses another state directory than that which is given. "" stands for any.
func CheckDaemon(given, used string) error {
	if given == "" || used == "" || Same(given, used) {
		return nil
	}
	return &Error{given, used, "the daemon that runs"}
}

// Record is a state directory as it is recorded: absolute, as commands run anywhere.
func Record(dir string) string {
	if dir == "" {
		return ""
	}
	dir, err := filepath.Abs(dir)
	if err != nil { // the working directory is gone
		return ""
	}
	return dir
}

// Same reports whether two paths lead to the same directory, or are the same.
func Same(a, b string) bool {
	if Record(a) == Record(b) && Record(a) != "" {
		return true
	}
	one, err := os.Stat(a)
	other, failed := os.Stat(b)
	return err == nil && failed == nil && os.SameFile(one, other)
}

// Exists reports whether there is a directory, as far as can be told.
func Exists(dir string) bool {
	if dir == "" {
		return false
	}
	_, err := os.Stat(dir)
	return !errors.Is(err, fs.ErrNotExist)
}
