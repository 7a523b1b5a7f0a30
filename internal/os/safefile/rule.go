// This file decides whose a file may be, and what other users may do with it.

package safefile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Permission bits for Rule.Closed.
const (
	ToWriters fs.FileMode = 0o022 // of writers who are not the owner
	ToAll     fs.FileMode = 0o077 // of everybody who is not the owner
)

// Rule says whose a file or a directory may be, and what users other than its owner must not be able to do with it.
type Rule struct {
	Owners []int       // the users it may belong to; nil: to any
	Closed fs.FileMode // permission bits that it must not have
	// Sticky allows others to write a directory with the sticky bit. They cannot rename or remove there what they do not own (rename(2),
	// EPERM).
	Sticky bool
}

// RootOrSelf are root and the user of this process, at the time of the call.
func RootOrSelf() []int { return []int{0, os.Geteuid()} }

// Private is the rule for a secret: only root and the user of this process can read or write it.
func Private() Rule { return Rule{Owners: RootOrSelf(), Closed: ToAll} }

// Unshared is the rule for what only root and the user of this process can write. Everybody may read it.
func Unshared() Rule { return Rule{Owners: RootOrSelf(), Closed: ToWriters} }

// Breach is how a file breaks the rule, "" when it keeps it. The text goes after the name of the file. What Stat says of an open file is
// of that file; what it says of a path may be of another one than what is opened later.
func (r Rule) Breach(info fs.FileInfo) string {
	if owner := Owner(info); r.Owners != nil && !slices.Contains(r.Owners, owner) {
		return fmt.Sprintf("belongs to user %d, not to %s", owner, named(r.Owners))
	}
	open := info.Mode().Perm() & r.Closed
	if r.Sticky && info.IsDir() && info.Mode()&fs.ModeSticky != 0 {
		open &^= ToWriters
	}
	if open == 0 {
		return ""
	}
	var can []string
	for _, right := range []struct {
		bits fs.FileMode
		verb string
	}{{0o044, "read"}, {0o022, "written"}, {0o011, "executed"}} {
		if open&right.bits != 0 {
			can = append(can, right.verb)
		}
	}
	return fmt.Sprintf("can be %s by others: its mode is %04o", strings.Join(can, " and "), info.Mode().Perm())
}

// named names users for a message.
func named(users []int) string {
	var list []string
	for _, u := range users {
		name := fmt.Sprintf("user %d", u)
		switch {
		case u == 0:
			name = "root"
		case u == os.Geteuid():
			name += ", who runs this"
		}
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return strings.Join(list, " or ")
}

// Owner is the user to whom a file belongs, -1 when that is not known.
func Owner(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// ExposedError says that a file with a secret breaks its rule: others may know the secret, or have chosen it.
type ExposedError struct {
	File, Cause string
	rule        Rule
}

func (e *ExposedError) Error() string { return e.File + " " + e.Cause }

// Hint is the remedy.
func (e *ExposedError) Hint() string {
	chmod := fmt.Sprintf("chmod %o %s", 0o660&^e.rule.Closed, e.File)
	if e.rule.Owners != nil {
		return fmt.Sprintf("chown root %s; %s", e.File, chmod)
	}
	return chmod
}

// Read reads a regular file of up to 64 KiB. One that breaks the rule is an *ExposedError. Any error names the file.
func (r Rule) Read(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe does not hang
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", file)
	}
	if cause := r.Breach(info); cause != "" {
		return nil, &ExposedError{file, cause, r}
	}
	text, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err == nil && len(text) > mostBytes {
		err = fmt.Errorf("%s has more than %d bytes", file, mostBytes)
	}
	return text, err
}
