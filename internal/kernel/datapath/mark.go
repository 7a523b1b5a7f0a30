// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// markAge is the minimum age of a directory's last change for a mark. A second change within the same tick of the kernel's clock (at most 10 ms) does
// not change the directory's time again.
const markAge = 100 * time.Millisecond

// errUnsettled says that an instance has no mark now.
var errUnsettled = errors.New("the instance is not settled")

// Mark returns a text that changes when a command changes the instance in a state directory, or when another tool detaches one of its links. It takes
// about ten system calls. It returns "" when such changes cannot be detected: shortly after a change; during a trial, which a deadline ends; for a
// policy without an XDP program, whose rulesets other tools can remove from netfilter; and when nothing runs. The mark does not cover netfilter, the
// content of maps, or devices that appear, go away or move. The kernel sends events for such devices.
func Mark(dir string) string {
	s := &State{dir: dir}
	text, err := s.mark(time.Now())
	if err != nil {
		return ""
	}
	return text
}

func (s *State) mark(now time.Time) (string, error) {
	numbers, err := s.generations()
	if err != nil || len(numbers) == 0 || s.isRecord(numbers[0]) {
		return "", errors.Join(err, errUnsettled)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	dirs := []string{"."}
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, e.Name())
		}
	}
	for _, name := range dirs {
		if strings.HasPrefix(name, trialPrefix) || strings.HasPrefix(name, renewalPrefix) {
			return "", errUnsettled
		}
		if err := s.markDir(&b, name, now); err != nil {
			return "", err
		}
	}
	for _, name := range []string{dirLinks, string(entering), string(leaving)} {
		if err := s.markLinks(&b, name); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// markDir adds the inode number of a directory and the time of its last change to b.
func (s *State) markDir(b *strings.Builder, name string, now time.Time) error {
	var st unix.Stat_t
	if err := unix.Stat(s.path(name), &st); err != nil {
		return err
	}
	changed := time.Unix(st.Mtim.Unix())
	if now.Sub(changed) < markAge { // too recent, or the clock was set back
		return errUnsettled
	}
	fmt.Fprintf(b, "%s %d %d\n", name, st.Ino, changed.UnixNano())
	return nil
}

// markLinks adds the program and the device of each link in a directory to b. A detached link has no device.
func (s *State) markLinks(b *strings.Builder, name string) error {
	entries, err := os.ReadDir(s.path(name))
	if errors.Is(err, os.ErrNotExist) && name != dirLinks {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		l, on, err := openLink(s.path(name, e.Name()))
		if err != nil {
			return err
		}
		l.Close()
		fmt.Fprintf(b, "%s %d %d %d\n", e.Name(), on.id, on.program, on.ifindex)
	}
	return nil
}
