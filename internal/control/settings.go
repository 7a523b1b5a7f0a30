package control

import (
	"context"

	"github.com/floodwall/floodwall/internal/manifest"
	"github.com/floodwall/floodwall/policy"
)

// DaemonSettings is what the policy that runs says of the daemon.
func (in Instance) DaemonSettings(ctx context.Context) (policy.Daemon, error) {
	l, err := in.open(ctx)
	if err != nil {
		return policy.Daemon{}, err
	}
	defer l.close()
	m := l.generations[0].manifest
	if m.Daemon == nil {
		return policy.Daemon{}, nil
	}
	return *m.Daemon, nil
}

// settingsWaitFor says what the policy wants of a daemon that does not run, "" when one runs or nothing is wanted.
func (in Instance) settingsWaitFor(m *manifest.Manifest) string {
	if m.Daemon == nil || in.hasDaemon() {
		return ""
	}
	return "nobody answers on " + m.Daemon.Listen.String() + " while `floodwall daemon` does not run: start it; " +
		"`apply --boot` has systemd start it after each reboot"
}
