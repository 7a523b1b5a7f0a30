package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Directories of units. A unit of the operator hides one of a package that has the same name, and additions in NAME.d go to
// whichever of them is in force (systemd.unit(5)).
const operatorUnits = "/etc/systemd/system"

var packageUnits = []string{"/usr/lib/systemd/system", "/lib/systemd/system"}

// additionName is our file of additions to a package's unit.
const additionName = "50-floodwall.conf"

func (u Units) additionFile(name string) string {
	return u.inRoot(operatorUnits, name+".d", additionName)
}

// HasDaemonUnit reports whether systemd has the unit of the daemon on this host, from a package or from `apply --boot`.
func HasDaemonUnit() bool {
	for _, dir := range append([]string{operatorUnits}, packageUnits...) {
		if _, err := os.Stat(filepath.Join(dir, DaemonUnit)); err == nil {
			return true
		}
	}
	return false
}

// packaged reports whether a package has a unit that runs this program for this instance. A program that was built by hand and
// stands beside a package gets units of its own, which hide those of the package.
func (u Units) packaged(name string) bool {
	for _, dir := range packageUnits {
		text, err := os.ReadFile(u.inRoot(dir, name))
		if err == nil {
			return strings.Contains(string(text), "\nExecStart="+u.exec(name)+"\n")
		}
	}
	return false
}

// exec is the command line of a unit.
func (u Units) exec(name string) string {
	switch name {
	case DaemonUnit:
		return u.command("daemon")
	case deviceUnit:
		return u.command("repair", "--boot-restore")
	}
	return u.Restore()
}

// addition is what a package's unit lacks on this host: the devices of the policy, and what the legacy iptables needs. Settings that
// are lists add up. Units that devices start are wanted by them through links, as systemd reads no [Install] here: enable makes them.
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

// enable has systemd start units as they say, and as the devices of the policy appear.
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

// want links a unit where systemd looks for what a device wants. `systemctl add-wants` refuses devices, as they have no files;
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
