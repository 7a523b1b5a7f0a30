package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/testutil"
)

// packagesVar tells the process inside of the namespaces where the packages are.
const packagesVar = "FLOODWALL_TEST_PACKAGES"

// packagesDir has the package of this version, present.deb, and one of the previous release, previous.deb: its program with the
// scripts and units of the present package.
func packagesDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(packagesVar); dir != "" {
		return dir
	}
	previous := testutil.Previous(t)
	dir := t.TempDir()
	os.Chmod(filepath.Dir(dir), 0o755)
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", `
arch=$(scripts/go env GOARCH)
KINDS=deb scripts/packages v0.2.0 "$1" "$arch"
mv "$1"/floodwall_0.2.0-1_*.deb "$1/present.deb"
dpkg-deb -R "$1/present.deb" "$1/tree"
cp "$2" "$1/tree/usr/bin/floodwall"
sed -i 's/^Version: .*/Version: 0.1.0-1/' "$1/tree/DEBIAN/control"
dpkg-deb --root-owner-group -Znone -b "$1/tree" "$1/previous.deb"
rm -r "$1/tree"`, "-", dir, previous)
	cmd.Dir = top
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("making packages: %v\n%s", err, out)
	}
	os.Setenv(packagesVar, dir)
	return dir
}

// TestPackageLife installs the package of the previous release on a Debian host, upgrades, reboots, removes and purges it, with packets
// coming all the time that the policy drops. None comes in from the first apply on, until somebody says so.
func TestPackageLife(t *testing.T) {
	packages, root := packagesDir(t), managersRoot(t)
	if !inside(t) {
		return
	}
	w := newWatch(t)
	d := newDebian(t, root)
	d.script("cp " + packages + "/*.deb DIR/root/opt/test/; mkdir DIR/root/etc/floodwall; cp " + w.policy + " DIR/root/etc/floodwall/mine.yaml")

	w.arrives()
	d.must("dpkg -i /opt/test/previous.deb")
	d.says("systemctl is-active floodwall floodwall-boot", "inactive\ninactive")
	d.says("systemctl is-enabled floodwall floodwall-boot", "disabled\ndisabled")
	d.says("getent group floodwall | cut -d: -f1; ls -d /sys/fs/bpf/floodwall 2>/dev/null; nft list ruleset", "floodwall")
	d.must("floodwall apply /etc/floodwall/mine.yaml; systemctl start floodwall; sleep 0.5; systemctl is-active floodwall")
	w.filtered()
	d.keeps(w, "upgrade", func() {
		before := d.must("systemctl show -P MainPID floodwall")
		d.must("dpkg -i /opt/test/present.deb")
		d.must("floodwall version | grep -q ' v0.2.0 '; systemctl is-active floodwall")
		if after := d.must("systemctl show -P MainPID floodwall"); after == before {
			t.Error("the daemon of the version before goes on")
		}
	})
	d.keeps(w, "apply --boot", func() { d.must("floodwall apply /etc/floodwall/mine.yaml --boot") })
	d.says("cd /etc/systemd/system; ls -d *floodwall* *.wants/*floodwall*", `floodwall-boot.service.d
floodwall-device.service.d
multi-user.target.wants/floodwall.service
sys-subsystem-net-devices-fw0.device.wants/floodwall-boot.service
sys-subsystem-net-devices-fw0.device.wants/floodwall-device.service
sys-subsystem-net-devices-fx0.device.wants/floodwall-boot.service
sys-subsystem-net-devices-fx0.device.wants/floodwall-device.service
sysinit.target.wants/floodwall-boot.service`)
	d.keeps(w, "stop and restart", func() {
		d.must("systemctl restart floodwall-boot floodwall; systemctl reload floodwall-boot")
		d.must("systemctl stop floodwall-boot floodwall; systemctl start floodwall")
	})
	d.says("for i in $(seq 100); do [ ! -S /run/floodwall/read.sock ] || break; sleep 0.1; done; stat -c '%G %a' /run/floodwall/read.sock", "floodwall 660")

	d.kill()
	sh(t, "nft flush ruleset")
	d.boot()
	d.says("systemctl is-active floodwall-boot floodwall", "active\nactive")
	w.filtered()

	d.keeps(w, "remove", func() { d.must("dpkg -r floodwall") })
	d.says("systemctl is-active floodwall; command -v floodwall; /var/lib/floodwall/removed/floodwall version | cut -d' ' -f2", "inactive\nv0.2.0")
	d.keeps(w, "purge without an answer", func() { d.must("dpkg -P floodwall") })
	d.says("find /etc/systemd /lib/systemd /usr/lib/sysusers.d /var/lib/floodwall -iname '*floodwall*' 2>/dev/null; ls /etc/floodwall", "mine.yaml")

	d.keeps(w, "install again", func() { d.must("dpkg -i /opt/test/present.deb; floodwall status") })
	d.must("echo floodwall floodwall/unload boolean true | debconf-set-selections; dpkg -P floodwall")
	d.says("ls -d /sys/fs/bpf/floodwall 2>/dev/null; nft list ruleset; find /etc/systemd /var/lib -iname '*floodwall*'; ls /etc/floodwall", "mine.yaml")
	w.arrives()
}

// keeps does something that must not let in a packet that the policy drops.
func (d *debian) keeps(w *watch, what string, do func()) {
	d.Helper()
	before, sent := w.received.Load(), w.sent.Load()
	do()
	w.filtered()
	passed := w.received.Load() - before
	d.Logf("%-24s %4d of %d packets passed", what, passed, w.sent.Load()-sent)
	if passed > 0 {
		d.Errorf("%s let %d packets in", what, passed)
	}
}

// TestPackageLint has Debian's own check look at the package, in the long form.
func TestPackageLint(t *testing.T) {
	if !testutil.Long() {
		return
	}
	testutil.RequireTool(t, "lintian")
	testutil.RequireRoot(t)
	out, err := exec.Command("lintian", "--allow-root", "--fail-on", "error,warning", filepath.Join(packagesDir(t), "present.deb")).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "" {
		t.Errorf("lintian: %v\n%s", err, out)
	}
}
