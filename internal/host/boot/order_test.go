// SPDX-License-Identifier: Apache-2.0

package boot_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// others are services of a usual host, with the ordering of their own units. Floodwall's unit must fit into this order.
var others = map[string]string{
	"firewalld": "Before=network-pre.target\nWants=network-pre.target\nAfter=dbus.service",
	"nftables":  "DefaultDependencies=no\nBefore=network-pre.target shutdown.target\nWants=network-pre.target",
	"ufw":       "DefaultDependencies=no\nBefore=network-pre.target\nWants=network-pre.target local-fs.target\nAfter=local-fs.target",
	"networking": "DefaultDependencies=no\nWants=network.target\nAfter=local-fs.target network-pre.target systemd-sysctl.service\n" +
		"Before=network.target shutdown.target network-online.target",
	"NetworkManager": "Wants=network.target\nAfter=network-pre.target dbus.service\nBefore=network.target",
}

// TestBootOrder makes systemd compute the boot transaction of a host with many firewalls, without booting. The transaction must have a start job for
// Floodwall's unit. It must have no ordering cycle, which systemd would break by dropping one of the jobs.
func TestBootOrder(t *testing.T) {
	const systemd = "/lib/systemd/systemd"
	testutil.RequireTool(t, systemd)
	u := units(t)
	u.Devices = []string{"eth0", "eth1", "bond0"}
	install(t, u)
	dir := filepath.Join(u.Root, unitDir)
	for name, unit := range others {
		write(t, filepath.Join(dir, name+".service"), "[Unit]\n"+unit+"\n[Service]\nExecStart=/bin/true\n")
		if err := os.Symlink("../../"+name+".service", filepath.Join(dir, "multi-user.target.wants", name+".service")); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(systemd, "--system", "--test", "--unit=multi-user.target", "--log-target=console")
	cmd.Env = []string{"SYSTEMD_UNIT_PATH=" + dir + ":/lib/systemd/system", "SYSTEMD_GENERATOR_PATH=" + t.TempDir(),
		"XDG_RUNTIME_DIR=" + t.TempDir()}
	if os.Geteuid() == 0 { // systemd refuses to do this as root
		testutil.RequireRoot(t) // root may become another user
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		os.Chmod(filepath.Dir(u.Root), 0o755)
		os.Chmod(u.Root, 0o755)
	}
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil {
		t.Fatalf("systemd: %v: %s", err, text)
	}
	for _, unit := range []string{"floodwall-boot.service", "floodwall.service", "firewalld.service", "networking.service"} {
		if !strings.Contains(text, "Action: "+unit+" -> start") {
			t.Errorf("%s would not be started", unit)
		}
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "cycle") {
			t.Error(line)
		}
	}
}
