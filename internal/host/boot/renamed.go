package boot

import (
	"context"
	"strings"
)

// oldDaemonUnit ran the daemon until floodwall.service did, which until then brought the policy back.
const oldDaemonUnit = "floodwall-daemon.service"

// rename gives units the names that they have now, where a version before wrote them under others. Without this, the old
// floodwall.service would bring the policy back wherever the daemon is meant. What was enabled or ran stays so. Nothing changes in
// the kernel, although the old floodwall.service unloads the policy when it stops (its ExecStop): it is stopped only when systemd
// has read the unit that has its name now.
func (u Units) rename(ctx context.Context) error {
	old, err := u.read(DaemonUnit)
	if err != nil || !strings.Contains(old, " --boot-restore ") {
		return nil // and what is foreign is reported by those who write
	}
	oldDaemon, _ := u.read(oldDaemonUnit)
	enabled := map[string]bool{}
	for now, before := range map[string]string{filterUnit: DaemonUnit, deviceUnit: deviceUnit, DaemonUnit: oldDaemonUnit} {
		enabled[now] = (before != oldDaemonUnit || oldDaemon != "") && u.systemctl(ctx, "--quiet", "is-enabled", before) == nil
	}
	active := u.running() && oldDaemon != "" && u.systemctl(ctx, "--quiet", "is-active", oldDaemonUnit) == nil
	// The units that bring the policy back come first. Whatever fails below, or ends this process, the host has them at its next boot.
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

// put writes units, and enables those that are to be.
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
