// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// StateError says why a directory cannot be the state directory of an instance, with the remedy.
type StateError struct {
	Dir, Cause, Remedy string // Cause continues the sentence after the name of the directory
}

func (e *StateError) Error() string { return fmt.Sprintf("state directory %s %s", e.Dir, e.Cause) }

// Hint is the remedy.
func (e *StateError) Hint() string { return e.Remedy }

// mountPoint is where distributions mount the BPF file system.
const mountPoint = "/sys/fs/bpf"

// mountBPF mounts a BPF file system at the usual place if the state directory is there and none is mounted. It refuses in a mount namespace that ends
// with this command, such as that of `ip netns exec`: the pins would end with the command, and so would the filtering.
func mountBPF(dir string) error {
	if dir != mountPoint && !strings.HasPrefix(dir, mountPoint+"/") || isBPF(mountPoint) {
		return nil
	}
	if !mountsLast() {
		return &StateError{Dir: dir, Cause: "cannot last: the BPF file system that would be mounted here ends with this command",
			Remedy: "mount one where it lasts (`mount -t bpf -o mode=0700 bpf DIR`) and name a directory in it with --bpffs, " +
				"or use `nsenter --net=/run/netns/NS` in place of `ip netns exec NS`"}
	}
	if err := unix.Mount("bpf", mountPoint, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mounting the BPF file system at %s: %w", mountPoint, err)
	}
	return nil
}

// StateHidden reports whether this process cannot see a state at the usual place: `ip netns exec` mounts another /sys, without the BPF file system.
func StateHidden() bool { return !isBPF(mountPoint) && !mountsLast() }

// mayMakeMaps returns an error if the user namespace of a container does not permit bpf(2). Capabilities in the container do not change that, and
// another mount or target would not help.
func mayMakeMaps() error {
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || strings.Join(strings.Fields(string(ids)), " ") == "0 0 4294967295" { // all IDs of the machine: the initial user namespace
		return nil
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err == nil {
		return m.Close()
	}
	if !errors.Is(err, unix.EPERM) {
		return nil // the first caller that needs a map reports the error
	}
	return wording.Hinted("the kernel does not permit bpf(2) in this user namespace, as in an unprivileged container, and Floodwall keeps the state of every target in BPF maps",
		"apply the policy on the container's host, to the other end of the container's device, or run the container with more rights (docs/guides/containers.md); "+
			"`floodwall compile POLICY --target nftables | nft -f -` loads the rules alone, without bans, trials and status")
}

// mountsLast reports whether mounts of this process outlive it, which is so in the mount namespace of process 1. Then both processes see the same
// mounts, whose IDs are unique on the machine (proc_pid_mountinfo(5)). Reading /proc/1/ns/mnt instead would require all capabilities of process 1.
func mountsLast() bool {
	ours, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return false
	}
	first, err := os.ReadFile("/proc/1/mountinfo")
	if err != nil {
		return false
	}
	number, _, _ := bytes.Cut(ours, []byte(" "))
	for line := range bytes.Lines(first) {
		if bytes.HasPrefix(line, append(number, ' ')) {
			return true
		}
	}
	return false
}

func isBPF(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.BPF_FS_MAGIC
}

// check returns an error if the state directory cannot have the state of an instance of this network namespace. If the directory does not exist,
// check examines the place where it would be created.
func (s *State) check() error {
	at := s.dir
	for _, err := os.Stat(at); errors.Is(err, os.ErrNotExist) && at != filepath.Dir(at); _, err = os.Stat(at) {
		at = filepath.Dir(at)
	}
	if !isBPF(at) {
		return &StateError{Dir: s.dir, Cause: "is not in a BPF file system",
			Remedy: "mount one there (`mount -t bpf -o mode=0700 bpf DIR`), or name another directory with --bpffs"}
	}
	if at != s.dir {
		return nil
	}
	if isRoot(s.dir) {
		return &StateError{Dir: s.dir, Cause: "is the root of a BPF file system, which others use too",
			Remedy: "name a directory in it with --bpffs, such as " + s.dir + "/floodwall"}
	}
	if err := s.checkOwners(); err != nil {
		return err
	}
	if err := s.checkNames(); err != nil {
		return err
	}
	if s.create {
		return s.awaitNamespace()
	}
	return s.checkNamespace()
}

// isRoot reports whether a directory is the root of its file system: its parent is on another file system.
func isRoot(dir string) bool {
	var here, above unix.Stat_t
	if unix.Stat(dir, &here) != nil || unix.Stat(dir+"/..", &above) != nil {
		return false
	}
	return here.Dev != above.Dev
}

// checkNames returns an error for a directory with an unknown name in it, because it belongs to another program.
func (s *State) checkNames() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("state directory: %w", err)
	}
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Name()] = true
		if _, ok := generationNumber(e.Name()); ok {
			there[generationPrefix] = true
		}
		if n, ok := formatNumber(e.Name()); ok {
			if err := s.checkFormat(n); err != nil {
				return err
			}
			continue
		}
		if !known(e.Name()) {
			return &StateError{Dir: s.dir, Cause: "holds " + e.Name() + ", which is not Floodwall's",
				Remedy: "name a directory of Floodwall's own with --bpffs"}
		}
	}
	if there[generationPrefix] && !there[dirLinks] { // "links" is created before any generation, and removed after all of them
		return &StateError{Dir: s.dir, Cause: "has generations, but " + dirLinks + " has been moved: it is not known what devices run",
			Remedy: "move it back; or, if you can bear a moment without a filter, remove the whole directory and apply"}
	}
	return nil
}

// known reports whether a file name in the state directory is one of ours.
func known(name string) bool {
	name = strings.TrimSuffix(name, passingSuffix)
	_, generation := generationNumber(name)
	_, trial := trialNumber(name)
	_, renewal := renewalNumber(name)
	return generation || trial || renewal || name == dirLinks || isSide(Mode(name)) || name == pinNamespace || name == pinAlive || name == pinSetting || name == pinDirectory
}

// remove removes all known names from the state directory, and then the directory if it is empty.
func (s *State) remove() error {
	links, err := os.ReadDir(s.path(dirLinks))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("state directory: %w", err)
	}
	var errs []error
	for _, l := range links {
		errs = append(errs, os.Remove(s.path(dirLinks, l.Name())))
	}
	errs = append(errs, s.sweepSides(nil, true))
	onTrial, err := s.trialNumbers()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs = append(errs, err)
	for _, n := range onTrial {
		errs = append(errs, s.removeTrial(n))
	}
	renewals, err := s.renewals()
	errs = append(errs, err)
	for _, n := range renewals {
		errs = append(errs, s.dropRenewal(n))
	}
	numbers, err := s.generations()
	errs = append(errs, err)
	for _, n := range numbers {
		errs = append(errs, s.removeGeneration(n))
	}
	for _, name := range []string{formatName(stateFormat), pinNamespace + passingSuffix, pinAlive + passingSuffix, pinNamespace, pinAlive, pinSetting, pinDirectory, pinDirectory + passingSuffix, string(entering), string(leaving), dirLinks, "."} {
		errs = append(errs, removeUnused(s.path(name)))
	}
	return errors.Join(errs...)
}

// removeUnused removes a file, or a directory that is empty and not a mount point.
func removeUnused(path string) error {
	err := os.Remove(path)
	for _, fine := range []error{os.ErrNotExist, unix.ENOTEMPTY, unix.EBUSY} {
		if errors.Is(err, fine) {
			return nil
		}
	}
	return err
}
