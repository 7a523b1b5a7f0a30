package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cilium/ebpf/link"
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
	if cause := shared(info, false); cause != "" {
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
	for path != filepath.Dir(path) {
		path = filepath.Dir(path)
		info, err := os.Lstat(path)
		if err != nil {
			return fmt.Errorf("state directory: %w", err)
		}
		if info.Mode()&os.ModeSymlink == 0 {
			if cause := shared(info, true); cause != "" {
				return s.sharedError(path, cause)
			}
			continue
		}
		if !trusted(info) {
			return s.sharedError(path, ownerText(info))
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

// shared is the reason for which others could change the content of a directory, "" if they cannot. With the sticky bit
// they cannot rename or remove the files of others (rename(2), EPERM), which suffices above the state.
func shared(info os.FileInfo, above bool) string {
	sticky := above && info.Mode()&os.ModeSticky != 0
	switch {
	case !trusted(info):
		return ownerText(info)
	case info.Mode().Perm()&0o022 != 0 && !sticky:
		return fmt.Sprintf("can be written by others: its mode is %#o, not 0700", info.Mode().Perm())
	}
	return ""
}

// trusted reports whether a file belongs to this user or to root.
func trusted(info os.FileInfo) bool {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	return owner == 0 || owner == os.Geteuid()
}

func ownerText(info os.FileInfo) string {
	return fmt.Sprintf("belongs to user %d, not to user %d, who runs this, nor to root", info.Sys().(*syscall.Stat_t).Uid, os.Geteuid())
}

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
