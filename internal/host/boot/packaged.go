// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Directories of systemd units. A unit of the operator overrides a package's unit of the same name. Additions in NAME.d apply to the unit that is in
// force (systemd.unit(5)).
const operatorUnits = "/etc/systemd/system"

var packageUnits = []string{"/usr/lib/systemd/system", "/lib/systemd/system"}

// additionName is the name of our file with additions to a package's unit.
const additionName = "50-floodwall.conf"

func (u Units) additionFile(name string) string {
	return u.inRoot(operatorUnits, name+".d", additionName)
}

// HasDaemonUnit reports whether this host has the systemd unit of the daemon, from a package or from `apply --boot`.
func HasDaemonUnit() bool {
	for _, dir := range append([]string{operatorUnits}, packageUnits...) {
		if _, err := os.Stat(filepath.Join(dir, DaemonUnit)); err == nil {
			return true
		}
	}
	return false
}

// packaged reports whether a package has a unit that runs this program for this instance. A hand-built program on a host with the package gets its
// own units, which override those of the package.
func (u Units) packaged(name string) bool {
	for _, dir := range packageUnits {
		text, err := os.ReadFile(u.inRoot(dir, name))
		if err == nil {
			return strings.Contains(string(text), "\nExecStart="+u.exec(name)+"\n")
		}
	}
	return false
}

// exec returns the command line of a unit.
func (u Units) exec(name string) string {
	switch name {
	case DaemonUnit:
		return u.command("daemon")
	case deviceUnit:
		return u.command("repair", "--boot-restore")
	}
	return u.Restore()
}

// addition returns the additions that a package's unit needs on this host: the devices of the policy, and rights for iptables-legacy. Settings that
// are lists are appended. systemd ignores [Install] in additions, so enable creates the links for units that devices start.
func (u Units) addition(name string) string {
	var text strings.Builder
	if name != DaemonUnit {
		text.WriteString(mark + "# Wanted by: " + strings.Join(u.deviceUnits(), " ") + "\n")
	} else if u.Legacy {
		text.WriteString(mark)
	}
	if awaited := strings.Join(u.awaitedUnits(), " "); name == filterUnit && awaited != "" {
		text.WriteString("\n[Unit]\nWants=" + awaited + "\nAfter=" + awaited + "\n")
	}
	if u.Legacy {
		text.WriteString("\n[Service]\nCapabilityBoundingSet=CAP_NET_RAW\nReadWritePaths=/run\n")
	}
	return text.String()
}

// enable enables units as their text says. It also makes systemd start them when a device of the policy appears.
func (u Units) enable(ctx context.Context, names ...string) error {
	if err := u.systemctl(ctx, append([]string{"reenable"}, names...)...); err != nil {
		return err
	}
	for _, name := range names {
		if name == DaemonUnit || !u.packaged(name) {
			continue
		}
		for _, device := range u.deviceUnits() {
			if err := u.want(device, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// want links a unit into the directory of units that a device starts. `systemctl add-wants` refuses devices, because they have no unit files.
// `systemctl disable` removes the link.
func (u Units) want(device, name string) error {
	dir := u.inRoot(operatorUnits, device+".wants")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("enabling a unit: %w", err)
	}
	err := os.Symlink(filepath.Join(packageUnits[0], name), filepath.Join(dir, name))
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("enabling a unit: %w", err)
	}
	return syncDir(dir)
}
