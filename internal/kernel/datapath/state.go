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

// DefaultDir is where state is when nothing else is said.
const DefaultDir = "/sys/fs/bpf/floodwall"

// Errors of State.
var (
	ErrNotLoaded = errors.New("nothing is loaded")
	ErrLocked    = errors.New("another floodwall is changing the state")
)

// State is the directory of an instance in the BPF file system.
type State struct {
	dir    string
	create bool // make it when it is absent
}

// OpenState opens a state directory and makes it when it is absent; a BPF file system is mounted at /sys/fs/bpf when
// there is none there. Without create an absent directory is ErrNotLoaded. A directory that is not an instance's, or
// whose instance is in another network namespace, is a StateError.
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
	return s, s.checkOwners() // another user may have made it first
}

func (s *State) make() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	return nil
}

// furnish makes what every instance has. The caller holds the lock, so nobody is about to remove it.
func (s *State) furnish() error {
	if err := os.MkdirAll(s.path(dirLinks), 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := s.setFormat(); err != nil {
		return err
	}
	return s.claim()
}

// Lock keeps others from changing the state until the returned function is called, or this process ends. It waits for
// them until the context is done, and then returns ErrLocked.
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

// prepare is what comes before each try to get the lock: another may just have removed the directory.
func (s *State) prepare() error {
	if s.create {
		return s.make()
	}
	if _, err := os.Stat(s.dir); errors.Is(err, os.ErrNotExist) {
		return ErrNotLoaded
	}
	return nil
}

// enter is the first thing to do with the lock: another may have made the directory after OpenState looked, or have died.
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

// RemoveIfEmpty removes the directory of an instance that has nothing loaded, no records and no setting to restore. The
// caller holds the lock.
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

// generationNumber is the n of generationName(n).
func generationNumber(name string) (n int, ok bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, generationPrefix))
	return n, err == nil && n > 0 && generationName(n) == name
}

// generations lists the generations that have a directory, whether or not they run, newest first.
func (s *State) generations() ([]int, error) { return s.numbers(generationNumber) }

// numbers lists the numbers that are in the names of files, newest first.
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

// pinName makes a file name of the name of a map or device. The BPF file system reserves dots: bpf_lookup in the
// kernel's kernel/bpf/inode.c.
func pinName(name string) string {
	return strings.NewReplacer("%", "%25", ".", "%2e", "/", "%2f").Replace(name)
}

func unpinName(name string) string {
	return strings.NewReplacer("%2f", "/", "%2e", ".", "%25", "%").Replace(name)
}
