// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"strings"
)

// oldDaemonUnit is the old name of the daemon's unit. At that time the unit that loads the policy had the name floodwall.service, which is now the
// daemon's.
const oldDaemonUnit = "floodwall-daemon.service"

// rename renames units that an earlier version wrote under other names. Without it the old floodwall.service would load the policy when the daemon
// should start. Units stay enabled and running. The old floodwall.service unloads the policy when it stops (its ExecStop). So it is stopped only
// after systemd has read the new unit of that name, and nothing changes in the kernel.
func (u Units) rename(ctx context.Context) error {
	old, err := u.read(DaemonUnit)
	if err != nil || !strings.Contains(old, " --boot-restore ") {
		return nil // the functions that write units report units of other owners
	}
	oldDaemon, _ := u.read(oldDaemonUnit)
	enabled := map[string]bool{}
	for now, before := range map[string]string{filterUnit: DaemonUnit, deviceUnit: deviceUnit, DaemonUnit: oldDaemonUnit} {
		enabled[now] = (before != oldDaemonUnit || oldDaemon != "") && u.systemctl(ctx, "--quiet", "is-enabled", before) == nil
	}
	active := u.running() && oldDaemon != "" && u.systemctl(ctx, "--quiet", "is-active", oldDaemonUnit) == nil
	// The units that load the policy come first, so that the host has them at its next boot if a later step fails or this process ends.
	if err := u.put(ctx, enabled, filterUnit, deviceUnit); err != nil {
		return err
	}
	for _, name := range []string{oldDaemonUnit, DaemonUnit} {
		if name == oldDaemonUnit && oldDaemon == "" {
			continue
		}
		words := []string{"disable", name}
		if u.running() && name == oldDaemonUnit {
			words = []string{"disable", "--now", name}
		}
		if err := u.systemctl(ctx, words...); err != nil {
			return err
		}
		if err := removeOurs(u.wholeFile(name)); err != nil {
			return err
		}
	}
	if err := u.put(ctx, enabled, u.names()...); err != nil {
		return err
	}
	if !u.running() {
		return nil
	}
	if active {
		return u.systemctl(ctx, "restart", DaemonUnit)
	}
	return u.systemctl(ctx, "stop", DaemonUnit)
}

// put writes the named units, and enables those for which enabled is true.
func (u Units) put(ctx context.Context, enabled map[string]bool, names ...string) error {
	if err := u.write(names...); err != nil {
		return err
	}
	if err := u.reload(ctx); err != nil {
		return err
	}
	for _, name := range names {
		if enabled[name] {
			if err := u.enable(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}
