// SPDX-License-Identifier: Apache-2.0

// This file checks the owner and the permissions of a file.

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
	ToWriters fs.FileMode = 0o022 // write permission for users other than the owner
	ToAll     fs.FileMode = 0o077 // all permissions for users other than the owner
)

// Rule has the allowed owners of a file or a directory, and the permissions that other users must not have.
type Rule struct {
	Owners []int       // the allowed owners; nil: any
	Closed fs.FileMode // permission bits that must not be set
	// Sticky allows a directory with the sticky bit to be writable by others. In such a directory, users cannot rename or remove files of other users
	// (rename(2), EPERM).
	Sticky bool
	Pipe   bool // Read also accepts a pipe, as a shell creates it for <(COMMAND)
}

// RootOrSelf returns the user IDs of root and of this process (the effective user).
func RootOrSelf() []int { return []int{0, os.Geteuid()} }

// Private returns the rule for a secret: only root and the user of this process can read or write the file.
func Private() Rule { return Rule{Owners: RootOrSelf(), Closed: ToAll} }

// Key returns the rule for the file of a key. The owner of the directory may also own the file, because that user can replace the file in any case.
// So root can use the keys of a process that runs as a user of its own.
func Key(file string) Rule {
	r := Private()
	if info, err := os.Stat(filepath.Dir(file)); err == nil {
		r.Owners = append(r.Owners, Owner(info))
	}
	return r
}

// Unshared returns the rule for a file that only root and the user of this process can write. All users may read it.
func Unshared() Rule { return Rule{Owners: RootOrSelf(), Closed: ToWriters} }

// Breach returns a text that describes how a file breaks the rule. It returns "" if the file does not. The text continues a message that begins with
// the file's name. info must come from Stat of the open file. Stat of a path may describe another file than the one that is opened later.
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

// stranger reports whether the owner of a file is not among the allowed owners.
func (r Rule) stranger(info fs.FileInfo) bool {
	return r.Owners != nil && !slices.Contains(r.Owners, Owner(info))
}

// open returns the permission bits of a file that must not be set.
func (r Rule) open(info fs.FileInfo) fs.FileMode {
	open := info.Mode().Perm() & r.Closed
	if r.Sticky && info.IsDir() && info.Mode()&fs.ModeSticky != 0 {
		open &^= ToWriters
	}
	return open
}

// named returns a text with the names of users, for messages.
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

// Owner returns the user ID of a file's owner. It returns -1 if the owner is unknown.
func Owner(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// ExposedError is the error that a file with a secret breaks its rule. Other users may know the secret, or may have chosen it.
type ExposedError struct {
	File, Cause string
	rule        Rule
	owner       bool // the file has a wrong owner
	mode        bool // other users have forbidden permissions
}

func (e *ExposedError) Error() string { return e.File + " " + e.Cause }

// Hint returns a command that is the remedy.
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

// Read reads a regular file of up to 64 KiB or, if Pipe is set, a pipe. If the file breaks the rule, the error is an *ExposedError. Every error names
// the file.
func (r Rule) Read(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // O_NONBLOCK: the call does not wait for a writer of a pipe
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
