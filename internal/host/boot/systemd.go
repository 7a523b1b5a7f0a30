// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/floodwall/floodwall/internal/os/safefile"
)

// systemctlWait is the longest time that systemctl may take, because systemd may be busy. It is twice the time that systemd waits for a unit
// (DefaultTimeoutStartSec).
const systemctlWait = 3 * time.Minute

// NoSystemdError says that this host has no systemd that can start units.
type NoSystemdError struct{ Restore string }

func (e *NoSystemdError) Error() string {
	return "there is no systemd on this host (no systemctl), so nothing brings the saved policy back after a reboot"
}

// Hint returns the remedy.
func (e *NoSystemdError) Hint() string {
	return fmt.Sprintf("have the host's init run `%s` as root, before the network comes up", e.Restore)
}

// Check returns an error if Install cannot work. It changes nothing. Commands call it before they make any change.
func (u Units) Check() error {
	for what, path := range map[string]string{"state directory": u.State, "BPF file system": u.BPFFS, "binary": u.Binary} {
		if !filepath.IsAbs(path) || strings.ContainsFunc(path, unicode.IsControl) {
			return fmt.Errorf("%s for systemd: %q is not an absolute path without control characters", what, path)
		}
	}
	if strings.ContainsAny(u.Binary, `"'\$`) {
		return fmt.Errorf("binary for systemd: %s has a character in its name that systemd does not allow there", u.Binary)
	}
	if _, err := os.Stat(u.Binary); err != nil {
		return fmt.Errorf("binary for systemd: %w", err)
	}
	for _, name := range u.names() {
		if _, err := u.read(name); err != nil {
			return err
		}
	}
	if _, err := exec.LookPath("systemctl"); err != nil {
		return &NoSystemdError{u.Restore()}
	}
	return nil
}

// Install writes the units and enables them. It does not start them, because the work of the units is already done. It does not write files that are
// up to date. The notes are for the operator.
func (u Units) Install(ctx context.Context) (notes []string, err error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	if err := u.rename(ctx); err != nil {
		return nil, err
	}
	if err := u.write(u.names()...); err != nil {
		return nil, err
	}
	if err := u.reload(ctx); err != nil {
		return nil, err
	}
	if err := u.enable(ctx, u.names()...); err != nil {
		return nil, err
	}
	return u.notes(), nil
}

// StartDaemon starts the unit of the daemon, if systemd runs.
func (u Units) StartDaemon(ctx context.Context) error {
	if !u.running() {
		return nil
	}
	return u.systemctl(ctx, "start", DaemonUnit)
}

// Refresh updates installed units to the policy's devices and to this version of Floodwall. Units that the operator has disabled stay disabled. If
// floodwall-boot.service is not installed, Refresh does nothing.
func (u Units) Refresh(ctx context.Context) error {
	if err := u.rename(ctx); err != nil {
		return err
	}
	installed, err := u.read(filterUnit)
	if err != nil || installed == "" {
		return err
	}
	var changed []string
	for _, name := range u.names() {
		text, err := u.read(name)
		if err != nil {
			return err
		}
		removed := text == "" && name == DaemonUnit && !u.packaged(name) // the operator has removed it
		if text == u.text(name) || removed {
			continue
		}
		if err := u.writeUnit(name); err != nil {
			return err
		}
		changed = append(changed, name)
	}
	if len(changed) == 0 {
		return nil
	}
	if err := u.reload(ctx); err != nil {
		return err
	}
	if u.systemctl(ctx, "--quiet", "is-enabled", filterUnit) != nil {
		return nil
	}
	hangs := slices.DeleteFunc(changed, func(name string) bool { return name == DaemonUnit }) // units that devices start
	if len(hangs) == 0 {
		return nil
	}
	return u.enable(ctx, hangs...)
}

// Remove disables, stops and removes the existing units of this instance. The caller must unload the policy first.
func (u Units) Remove(ctx context.Context) error {
	boot, _ := u.read(filterUnit) // the unit filterUnit is removed last
	for _, name := range []string{DaemonUnit, deviceUnit, filterUnit} {
		text, err := u.read(name)
		if ours := text != "" || boot != "" && u.packaged(name); err != nil || !ours {
			continue
		}
		words := []string{"disable", name}
		if u.running() {
			words = []string{"disable", "--now", name}
		}
		if err := u.systemctl(ctx, words...); err != nil {
			return err
		}
		for _, file := range []string{u.wholeFile(name), u.additionFile(name)} {
			if err := removeOurs(file); err != nil {
				return err
			}
		}
		if err := u.reload(ctx); err != nil {
			return err
		}
	}
	return nil
}

// running reports whether systemd runs these units.
func (u Units) running() bool { return u.Root == "" && Running() }

// Running reports whether systemd runs here. It checks the same directory as sd_booted(3).
func Running() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// reload makes systemd read its units again, if systemd runs.
func (u Units) reload(ctx context.Context) error {
	if !u.running() {
		return nil
	}
	return u.systemctl(ctx, "daemon-reload")
}

func (u Units) systemctl(ctx context.Context, words ...string) error {
	if u.Root != "" {
		words = append([]string{"--root=" + u.Root}, words...)
	}
	limited, cancel := context.WithTimeout(ctx, systemctlWait)
	defer cancel()
	out, err := exec.CommandContext(limited, "systemctl", words...).CombinedOutput()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if limited.Err() != nil {
		return fmt.Errorf("systemctl %s: no answer of systemd for %v: try again when the system is less busy", strings.Join(words, " "), systemctlWait)
	}
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(words, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// notes returns notes for the operator about the units.
func (u Units) notes() (notes []string) {
	if !u.running() {
		notes = append(notes, "systemd does not run here: the policy comes back when this system is booted with it")
	}
	if path, ok := writable(u.Binary); ok {
		notes = append(notes, fmt.Sprintf("%s can be changed by users other than root, and systemd runs %s as root",
			path, u.Binary))
	}
	if !hostNetwork() {
		notes = append(notes, "this is not the host's network namespace: at boot the policy is applied in the host's")
	}
	return notes
}

// writable reports whether users other than root can write a file or a directory above it. It returns the path that they can write.
func writable(path string) (string, bool) {
	rule := safefile.Rule{Owners: []int{0}, Closed: safefile.ToWriters, Sticky: true}
	for {
		info, err := os.Stat(path)
		if err != nil {
			return "", false
		}
		if rule.Breach(info) != "" {
			return path, true
		}
		if path == "/" {
			return "", false
		}
		path = filepath.Dir(path)
	}
}

// hostNetwork reports whether this process is in the network namespace of process 1. It returns true if that is unknown.
func hostNetwork() bool {
	ours, err := os.Readlink("/proc/self/ns/net")
	first, errFirst := os.Readlink("/proc/1/ns/net")
	return err != nil || errFirst != nil || ours == first
}
