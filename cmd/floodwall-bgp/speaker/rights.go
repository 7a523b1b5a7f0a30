// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// needless returns the error for rights that the process must not have.
func needless(problem string) error {
	return wording.Hinted("this process reads what the network sends, and "+problem,
		"use the unit, `systemctl start floodwall-bgp`, or as root name a user for it, as in --user nobody")
}

// Drop gives up all rights except those of a user, and makes that user the owner of the directories. An empty name means that the process already has
// no rights.
// It returns an error when the process still has rights that it does not need.
func Drop(name string, run, state string) error {
	switch {
	case name == "" && os.Geteuid() == 0:
		return needless("does not run as root")
	case name != "" && os.Geteuid() != 0:
		return errors.New("--user is for root, and this process runs as another user")
	case name != "":
		if err := become(name, run, state); err != nil {
			return fmt.Errorf("user %s: %w", name, err)
		}
	}
	return withoutRights()
}

// become switches this process to a user, with no way back.
func become(name, run, state string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	if uid == 0 {
		return errors.New("has all rights: name another one")
	}
	if err := errors.Join(give(run, 0o755, uid, gid), give(state, 0o700, uid, gid)); err != nil { // the state contains passwords
		return err
	}
	// The change must apply to all threads, because a thread with rights could give them back to all threads. The last call makes the kernel clear
	// the capability sets, because the user was root before (capabilities(7)). withoutRights checks the result.
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if _, _, e := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); e != 0 && e != syscall.EINVAL {
			return fmt.Errorf("capability %d: %w", c, e)
		}
	}
	if _, _, e := syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return e
	}
	if err := syscall.Setgroups([]int{}); err != nil {
		return err
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return err
	}
	return syscall.Setresuid(uid, uid, uid)
}

// give makes a user the owner of a directory. It refuses a directory of another user, because the path may lead elsewhere.
func give(dir string, mode os.FileMode, uid, gid int) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	info, err := d.Stat()
	if err != nil {
		return err
	}
	if cause := (safefile.Rule{Owners: []int{0, uid}}).Breach(info); cause != "" { // the mode is set below
		return fmt.Errorf("%s %s", dir, cause)
	}
	return errors.Join(d.Chown(uid, gid), d.Chmod(mode))
}

// withoutRights checks the rights of each thread, according to the kernel.
func withoutRights() error {
	all, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return err
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name != "CapEff" && name != "CapPrm" && name != "CapAmb" {
				continue
			}
			has, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return err
			}
			if more := has &^ (1 << unix.CAP_NET_BIND_SERVICE); more != 0 {
				return needless(fmt.Sprintf("has capabilities %#x that it does not need", more))
			}
		}
	}
	return nil
}
