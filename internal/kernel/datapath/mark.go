package datapath

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// markAge is the least age of a directory's last change: a second change within the same tick of the kernel's clock, 10
// ms at most, does not change the directory's time again.
const markAge = 100 * time.Millisecond

// errUnsettled says that an instance has no mark now.
var errUnsettled = errors.New("the instance is not settled")

// Mark is a text that stays the same as long as no command changes the instance in a state directory and no other tool
// detaches its links. It takes some ten system calls. It is "" when this cannot be known: shortly after a change,
// during a trial, which ends by the clock, for a policy without an XDP program, which others can remove from netfilter,
// and when nothing runs. It covers neither netfilter, nor devices that appear, go or move (the kernel sends events for
// these), nor the content of maps.
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

// markDir adds the number of a directory and the time of its last change.
func (s *State) markDir(b *strings.Builder, name string, now time.Time) error {
	var st unix.Stat_t
	if err := unix.Stat(s.path(name), &st); err != nil {
		return err
	}
	changed := time.Unix(st.Mtim.Unix())
	if now.Sub(changed) < markAge { // or the clock was set back
		return errUnsettled
	}
	fmt.Fprintf(b, "%s %d %d\n", name, st.Ino, changed.UnixNano())
	return nil
}

// markLinks adds which program each link of a directory has, and at which device. A link that was detached has no device.
func (s *State) markLinks(b *strings.Builder, name string) error {
	entries, err := os.ReadDir(s.path(name))
	if errors.Is(err, os.ErrNotExist) && name != dirLinks {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		l, err := link.LoadPinnedLink(s.path(name, e.Name()), nil)
		if err != nil {
			return err
		}
		info, err := l.Info()
		l.Close()
		if err != nil {
			return err
		}
		device := uint32(0)
		if x := info.XDP(); x != nil {
			device = x.Ifindex
		} else if x := info.TCX(); x != nil {
			device = x.Ifindex
		}
		fmt.Fprintf(b, "%s %d %d %d\n", e.Name(), info.ID, info.Program, device)
	}
	return nil
}
