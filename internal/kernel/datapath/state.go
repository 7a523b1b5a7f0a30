// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// DefaultDir is the default state directory.
const DefaultDir = "/sys/fs/bpf/floodwall"

// Errors of State.
var (
	ErrNotLoaded = errors.New("nothing is loaded")
	ErrLocked    = errors.New("another floodwall is changing the state")
)

// State is the directory of an instance in the BPF file system.
type State struct {
	dir    string
	create bool // create the directory if it does not exist
}

// OpenState opens a state directory. If `create` is true, it creates a missing directory, and mounts a BPF file system at /sys/fs/bpf if none is
// mounted there. If `create` is false, it returns ErrNotLoaded for a missing directory. It returns a StateError for a directory that is not an
// instance's, or whose instance is in another network namespace.
func OpenState(dir string, create bool) (*State, error) {
	s := &State{dir: filepath.Clean(dir), create: create}
	if !create {
		if _, err := os.Stat(s.dir); err != nil {
			return nil, ErrNotLoaded
		}
		return s, s.check()
	}
	if err := mayMakeMaps(); err != nil {
		return nil, err
	}
	if err := mountBPF(s.dir); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := s.make(); err != nil {
		return nil, err
	}
	return s, s.checkOwners() // another user may have created the directory first
}

func (s *State) make() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	return nil
}

// furnish creates the files that every instance has. The caller must hold the lock, so that no other process removes these files meanwhile.
func (s *State) furnish() error {
	if err := os.MkdirAll(s.path(dirLinks), 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := s.setFormat(); err != nil {
		return err
	}
	return s.claim()
}

// Lock prevents other processes from changing the state until unlock is called or this process ends. It waits for the lock until ctx ends, and then
// returns ErrLocked.
func (s *State) Lock(ctx context.Context) (unlock func(), err error) {
	unlock, err = safefile.Lock(ctx, s.dir, s.prepare)
	if errors.Is(err, safefile.ErrTaken) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, err
	}
	if err := s.enter(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// prepare runs before each attempt to take the lock, because another process may just have removed the directory.
func (s *State) prepare() error {
	if s.create {
		return s.make()
	}
	if _, err := os.Stat(s.dir); errors.Is(err, os.ErrNotExist) {
		return ErrNotLoaded
	}
	return nil
}

// enter runs when the lock was taken. Another process may have created the directory after the check of OpenState, or may have died during a Renew.
func (s *State) enter() error {
	if s.create {
		if err := s.furnish(); err != nil {
			return err
		}
	} else if err := s.checkNamespace(); err != nil {
		return err
	}
	return s.endRenewals()
}

// RemoveIfEmpty removes the directory of an instance with no loaded program, no records and no setting to restore. The caller must hold the lock.
func (s *State) RemoveIfEmpty() error {
	if s.keepsSetting() {
		return nil
	}
	links, err := os.ReadDir(s.path(dirLinks))
	if err != nil || len(links) > 0 {
		return err
	}
	records, err := s.Records()
	if err != nil || len(records) > 0 {
		return err
	}
	return s.remove()
}

func (s *State) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// Names in the state directory, besides those of generations.
const (
	dirLinks     = "links"
	pinNamespace = "netns"
)

const generationPrefix = "generation-"

func generationName(n int) string { return generationPrefix + strconv.Itoa(n) }

// generationNumber is the inverse of generationName.
func generationNumber(name string) (n int, ok bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, generationPrefix))
	return n, err == nil && n > 0 && generationName(n) == name
}

// generations lists the generations that have a directory, newest first. They need not run.
func (s *State) generations() ([]int, error) { return s.numbers(generationNumber) }

// numbers lists the numbers in the names of files, newest first. in extracts the number of a name.
func (s *State) numbers(in func(name string) (int, bool)) ([]int, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	var numbers []int
	for _, e := range entries {
		if n, ok := in(e.Name()); ok {
			numbers = append(numbers, n)
		}
	}
	slices.SortFunc(numbers, func(a, b int) int { return b - a })
	return numbers, nil
}

// pinName converts the name of a map or device to a file name. The BPF file system reserves dots (bpf_lookup in the kernel's kernel/bpf/inode.c).
func pinName(name string) string {
	return strings.NewReplacer("%", "%25", ".", "%2e", "/", "%2f").Replace(name)
}

func unpinName(name string) string {
	return strings.NewReplacer("%2f", "/", "%2e", ".", "%25", "%").Replace(name)
}
