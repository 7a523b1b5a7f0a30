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

// A user who can write the state directory, or rename a directory above it, decides what the devices run: a link that
// loses its pin detaches. So all these directories must belong to this user or to root. The BPF file system has mode
// 1777 unless mounted with another: there another user can make the directory first, but cannot rename ours.

// checkOwners returns an error if another user can change the content of the state directory, which exists.
func (s *State) checkOwners() error {
	info, err := os.Lstat(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed meanwhile
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

// checkAbove does the same for the directories above a path, and those that symbolic links lead to.
func (s *State) checkAbove(path string) error {
	above := safefile.Unshared()
	above.Sticky = true                                    // what is ours there stays in its place
	ofLink := safefile.Rule{Owners: safefile.RootOrSelf()} // the mode of a link says nothing
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
		if strings.HasPrefix(path, "/proc/") { // a descriptor that this process holds: it leads where no name does
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

// sharedError says that another user can change what is in a directory.
func (s *State) sharedError(path, cause string) error {
	remedy := fmt.Sprintf("find out what that user did there, and `chmod 0700 %s`; mount BPF file systems with `mount -t bpf -o mode=0700 bpf DIR`", path)
	if path == s.dir {
		return &StateError{Dir: s.dir, Cause: cause, Remedy: remedy}
	}
	return &StateError{Dir: s.dir, Cause: "is not safe: " + path + " " + cause, Remedy: remedy}
}

// checkNoLinks refuses a directory of programs and maps with anything else in it: removing a link would detach its
// program. A renamed directory of links looks like that.
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
