// This file decides whose a file may be, and what other users may do with it.

package safefile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	Pipe   bool // Read takes a pipe, too, as a shell makes for <(COMMAND)
}

// RootOrSelf are root and the user of this process, at the time of the call.
func RootOrSelf() []int { return []int{0, os.Geteuid()} }

// Private is the rule for a secret: only root and the user of this process can read or write it.
func Private() Rule { return Rule{Owners: RootOrSelf(), Closed: ToAll} }

// Key is the rule for the file of a key: it may also belong to the owner of its directory, who can replace it anyway. So root can use the
// keys of a process that has a user of its own.
func Key(file string) Rule {
	r := Private()
	if info, err := os.Stat(filepath.Dir(file)); err == nil {
		r.Owners = append(r.Owners, Owner(info))
	}
	return r
}

// Unshared is the rule for what only root and the user of this process can write. Everybody may read it.
func Unshared() Rule { return Rule{Owners: RootOrSelf(), Closed: ToWriters} }

// Breach is how a file breaks the rule, "" when it keeps it. The text goes after the name of the file. What Stat says of an open file is
// of that file; what it says of a path may be of another one than what is opened later.
func (r Rule) Breach(info fs.FileInfo) string {
	if r.stranger(info) {
		return fmt.Sprintf("belongs to user %d, not to %s", Owner(info), named(r.Owners))
	}
	open := r.open(info)
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

// stranger reports whether a file belongs to none of the owners.
func (r Rule) stranger(info fs.FileInfo) bool {
	return r.Owners != nil && !slices.Contains(r.Owners, Owner(info))
}

// open are the permission bits of a file that it must not have.
func (r Rule) open(info fs.FileInfo) fs.FileMode {
	open := info.Mode().Perm() & r.Closed
	if r.Sticky && info.IsDir() && info.Mode()&fs.ModeSticky != 0 {
		open &^= ToWriters
	}
	return open
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
	owner       bool // the file has a wrong owner
	mode        bool // others can do with it what they must not
}

func (e *ExposedError) Error() string { return e.File + " " + e.Cause }

// Hint is the remedy, as a command.
func (e *ExposedError) Hint() string {
	var all []string
	if e.owner {
		all = append(all, fmt.Sprintf("chown %d %s", os.Geteuid(), e.File))
	}
	if e.mode {
		all = append(all, fmt.Sprintf("chmod %o %s", 0o660&^e.rule.Closed, e.File))
	}
	return strings.Join(all, "; ")
}

// Read reads a regular file of up to 64 KiB, or with Pipe a pipe. One that breaks the rule is an *ExposedError. Any error names the file.
func (r Rule) Read(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe that nobody writes does not hang
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if pipe := info.Mode()&fs.ModeNamedPipe != 0; !info.Mode().IsRegular() && !(r.Pipe && pipe) {
		return nil, fmt.Errorf("%s is not a regular file", file)
	}
	if cause := r.Breach(info); cause != "" {
		return nil, &ExposedError{file, cause, r, r.stranger(info), r.open(info) != 0}
	}
	text, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err == nil && len(text) > mostBytes {
		err = fmt.Errorf("%s has more than %d bytes", file, mostBytes)
	}
	return text, err
}
