// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf/link"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// A user who can write the state directory, or rename a directory above it, controls the programs of the devices: a link detaches when its pin is
// removed. So all these directories must belong to this user or to root. The BPF file system has mode 1777 unless it is mounted with another mode.
// With mode 1777 another user can create the directory first, but cannot rename ours.

// checkOwners returns an error if another user can change the content of the state directory. The directory must exist.
func (s *State) checkOwners() error {
	info, err := os.Lstat(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // another process has removed it meanwhile
	}
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if !info.IsDir() {
		return &StateError{Dir: s.dir, Cause: "is not a directory", Remedy: "name the directory itself with --bpffs"}
	}
	if cause := safefile.Unshared().Breach(info); cause != "" {
		return s.sharedError(s.dir, cause)
	}
	path, err := filepath.Abs(s.dir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	return s.checkAbove(path)
}

// checkAbove makes the check of checkOwners for the directories above a path. It also checks the directories to which symbolic links lead.
func (s *State) checkAbove(path string) error {
	above := safefile.Unshared()
	above.Sticky = true                                    // others cannot rename our files in it
	ofLink := safefile.Rule{Owners: safefile.RootOrSelf()} // the mode of a link has no meaning
	for path != filepath.Dir(path) {
		path = filepath.Dir(path)
		info, err := os.Lstat(path)
		if err != nil {
			return fmt.Errorf("state directory: %w", err)
		}
		if info.Mode()&os.ModeSymlink == 0 {
			if cause := above.Breach(info); cause != "" {
				return s.sharedError(path, cause)
			}
			continue
		}
		if cause := ofLink.Breach(info); cause != "" {
			return s.sharedError(path, cause)
		}
		if strings.HasPrefix(path, "/proc/") { // a descriptor of this process: it does not depend on a name
			return nil
		}
		to, err := filepath.EvalSymlinks(path)
		if err == nil {
			err = s.checkAbove(filepath.Join(to, "x"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sharedError returns the error that another user can change the content of a directory.
func (s *State) sharedError(path, cause string) error {
	remedy := fmt.Sprintf("find out what that user did there, and `chmod 0700 %s`; mount BPF file systems with `mount -t bpf -o mode=0700 bpf DIR`", path)
	if path == s.dir {
		return &StateError{Dir: s.dir, Cause: cause, Remedy: remedy}
	}
	return &StateError{Dir: s.dir, Cause: "is not safe: " + path + " " + cause, Remedy: remedy}
}

// checkNoLinks returns an error if a directory of programs and maps has other files in it. A renamed directory of links looks like that, and removing
// a link would detach its program.
func (s *State) checkNoLinks(name string) error {
	entries, err := os.ReadDir(s.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("state directory: %w", err)
	}
	for _, e := range entries {
		l, err := link.LoadPinnedLink(s.path(name, e.Name()), nil)
		if err == nil {
			l.Close()
		}
		if err == nil || e.IsDir() {
			return &StateError{Dir: s.dir, Cause: "has " + e.Name() + " in " + name + ", which is not of a generation or trial: somebody has moved it",
				Remedy: "move it back to where it was, " + dirLinks + " for links of devices, and try again"}
		}
	}
	return nil
}
