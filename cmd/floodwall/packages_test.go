// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// testVersion is the version of the packages that are built from the present source.
const testVersion = "v0.2.0"

// packagesVar is the environment variable with the directory of the packages, for the process inside the namespaces.
const packagesVar = "FLOODWALL_TEST_PACKAGES"

// packagesDir returns a directory with packages. present.deb is the package of this version. previous.deb has the program of the previous release,
// but the scripts and units of present.deb. It also has a unit that is now in another package. bgp.deb, hub.deb and lab.deb are the packages of the
// other programs.
func packagesDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(packagesVar); dir != "" {
		return dir
	}
	testutil.RequireRoot(t)
	previous := testutil.Previous(t)
	dir, err := filepath.Abs(top + "/build/test-packages") // not of one test: the next one uses it, too
	if err == nil {
		err = errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", `
arch=$(scripts/go env GOARCH)
scripts/packages "$3" "$1" "$arch"
mv "$1"/floodwall_0.2.0-1_*.deb "$1/present.deb"
mv "$1"/floodwall-bgp_0.2.0-1_*.deb "$1/bgp.deb"
mv "$1"/floodwall-hub_0.2.0-1_*.deb "$1/hub.deb"
mv "$1"/floodwall-lab_0.2.0-1_*.deb "$1/lab.deb"
[[ $KINDS == deb ]] || mv "$1"/floodwall-0.2.0-1.*.rpm "$1/present.rpm"
dpkg-deb -R "$1/present.deb" "$1/tree"
cp "$2" "$1/tree/usr/bin/floodwall"
cp packaging/floodwall-bgp/floodwall-bgp.service "$1/tree/lib/systemd/system/"
sed -i 's/^Version: .*/Version: 0.1.0-1/' "$1/tree/DEBIAN/control"
dpkg-deb --root-owner-group -Znone -b "$1/tree" "$1/previous.deb"
rm -r "$1/tree"`, "-", dir, previous, testVersion)
	cmd.Dir, cmd.Env = top, append(os.Environ(), "KINDS=deb", "COMPRESSION=none")
	if testutil.Long() {
		cmd.Env = append(os.Environ(), "KINDS=deb rpm")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("making packages: %v\n%s", err, out)
	}
	os.Setenv(packagesVar, dir)
	return dir
}

// TestPackages builds the packages and uses them on Debian hosts.
func TestPackages(t *testing.T) {
	packages, root := packagesDir(t), managersRoot(t)
	t.Run("documents", func(t *testing.T) { packageDocuments(t, packages) })
	t.Run("life", func(t *testing.T) { packageLife(t, packages, root) })
	t.Run("getting-started", func(t *testing.T) { gettingStarted(t, packages, root) })
	if testutil.Long() {
		t.Run("lint", func(t *testing.T) { packageLint(t, packages) })
		t.Run("again", func(t *testing.T) { packagesAgain(t, packages) })
	}
}

// packageDocuments unpacks the package. It must have the README, the documents and the guides, with links only to files in the package. It must also
// have readable manual pages: one of the policy, and one with an example for each command.
func packageDocuments(t *testing.T, packages string) {
	dir := t.TempDir()
	if out, err := exec.Command("dpkg-deb", "-x", filepath.Join(packages, "present.deb"), dir).CombinedOutput(); err != nil {
		t.Fatalf("unpacking the package: %v: %s", err, out)
	}
	doc := filepath.Join(dir, "usr/share/doc/floodwall")
	var names []string
	err := filepath.WalkDir(doc, func(path string, d fs.DirEntry, err error) error {
		if name, _ := filepath.Rel(doc, path); err == nil && filepath.Ext(path) == ".md" {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"README.md", "docs/getting-started.md", "docs/policy.md", "docs/commands.md", "docs/operations.md", "docs/guides/web-server.md"} {
		if !slices.Contains(names, want) {
			t.Errorf("the package lacks %s", want)
		}
	}
	checkLinks(t, doc, names)
	for page, want := range map[string]string{
		"man5/floodwall-policy.5": `\fBdevices\fP`, "man8/floodwall.8": `floodwall\-policy (5)`, "man8/floodwall-apply.8": ".SH EXAMPLE",
	} {
		text, err := exec.Command("zcat", filepath.Join(dir, "usr/share/man", page+".gz")).CombinedOutput()
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %s: %v\n%.200s", page, want, err, text)
		}
	}
}

// packageLife installs the package of the previous release on a Debian host, upgrades it, reboots, and removes and purges the package. Packets that
// the policy drops arrive all the time. After the first apply, none may pass until an operator allows it.
func packageLife(t *testing.T, packages, root string) {
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
	otherPrograms(d, w)
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
	d.says("for i in $(seq 600); do [ ! -S /run/floodwall/read.sock ] || break; sleep 0.1; done; stat -c '%G %a' /run/floodwall/read.sock", "floodwall 660")

	d.kill()
	sh(t, "nft flush ruleset")
	// After the file system with their links is gone, the kernel detaches the programs with a delay.
	waitFor(t, "devices without programs of the system that ended", func() bool {
		links, err := exec.Command("ip", "link", "show").CombinedOutput()
		return err == nil && !strings.Contains(string(links), "prog/xdp")
	})
	d.boot()
	d.says("systemctl is-active floodwall-boot floodwall", "active\nactive")
	w.filtered()

	d.keeps(w, "remove", func() { d.must("dpkg -r floodwall") })
	d.says("systemctl is-active floodwall; command -v floodwall; /var/lib/floodwall/removed/floodwall version | cut -d' ' -f2", "inactive\nv0.2.0")
	d.keeps(w, "purge without an answer", func() { d.must("dpkg -P floodwall") })
	d.says("find /etc/systemd /etc/apparmor.d /lib/systemd /usr/lib/sysusers.d /var/lib/floodwall -iname '*floodwall*' 2>/dev/null; ls /etc/floodwall", "mine.yaml")

	d.keeps(w, "install again", func() { d.must("dpkg -i /opt/test/present.deb; floodwall status") })
	d.must("echo floodwall floodwall/unload boolean true | debconf-set-selections; dpkg -P floodwall")
	d.says("ls -d /sys/fs/bpf/floodwall 2>/dev/null; nft list ruleset; find /etc/systemd /var/lib -iname '*floodwall*'; ls /etc/floodwall", "mine.yaml")
	w.arrives()
}

// otherPrograms installs and removes the packages of the other programs. The previous release had these programs in one package.
func otherPrograms(d *debian, w *watch) {
	d.Helper()
	if out, err := d.run("floodwall hub status"); err == nil || !strings.Contains(out, "`hub` is a command of floodwall-hub") || !strings.Contains(out, "apt install floodwall-hub") {
		d.Errorf("hub without its package: %v\n%s", err, out)
	}
	d.keeps(w, "the other packages", func() {
		d.must("dpkg -i /opt/test/bgp.deb /opt/test/hub.deb /opt/test/lab.deb")
		d.says("for p in lab hub bgp; do floodwall-$p version | cut -d' ' -f1,2; done; systemctl is-enabled floodwall-bgp", "floodwall-lab v0.2.0\nfloodwall-hub v0.2.0\nfloodwall-bgp v0.2.0\ndisabled")
		d.says("floodwall hub version | cut -d' ' -f1; cd /tmp; ln -s /bin/true floodwall-hub; PATH=/tmp:$PATH floodwall hub version | cut -d' ' -f1; rm floodwall-hub",
			"floodwall-hub\nfloodwall-hub")
		d.must("systemctl enable floodwall-bgp; dpkg -P floodwall-lab floodwall-hub floodwall-bgp")
	})
}

// gettingStarted follows docs/getting-started.md on a Debian host with systemd: the package, `floodwall on` and `floodwall off`. TestDocuments compares
// what the commands print.
func gettingStarted(t *testing.T, packages, root string) {
	if !inside(t) {
		return
	}
	sh(t, "ip link set fw0 name eth0; ip link set eth0 up; ip addr replace 192.0.2.1/24 dev eth0; ip route add default via 192.0.2.2")
	d := newDebian(t, root)
	d.script("cp " + packages + "/present.deb DIR/root/root/floodwall_0.2.0-1_amd64.deb")
	served, err := net.Listen("tcp", ":22")
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	units := "systemctl is-enabled floodwall-boot floodwall; systemctl is-active floodwall"
	var ran []string
	for _, f := range console(fences(t, "docs/getting-started.md")) {
		for _, c := range f.commands(t) {
			if !regexp.MustCompile(`^(apt |floodwall (on|off)$)`).MatchString(c.command) {
				continue
			}
			ran = append(ran, c.command)
			out, err := d.run("cd; printf 'y\\n\\n' | " + c.command)
			t.Logf("$ %s\n%s", c.command, out)
			if err != nil {
				t.Errorf("%s: %s: %v\n%s\n%s", c.at, c.command, err, out, d.console())
			}
			switch c.command {
			case "floodwall on":
				d.serves()
				d.says(units, "enabled\nenabled\nactive")
			case "floodwall off":
				d.says(units, "disabled\ndisabled\ninactive")
				d.says("ls /sys/fs/bpf /etc/floodwall /etc/systemd/system | grep -i -e floodwall -e policy", "/etc/floodwall:\npolicy.yaml")
			}
		}
	}
	if len(ran) != 3 {
		t.Errorf("the page has the commands %q that concern the package", ran)
	}
}

// serves waits until the daemon in the Debian system reports that the policy is in force.
func (d *debian) serves() {
	d.Helper()
	socket := fmt.Sprintf("/proc/%d/root%s", d.systemd, readSocket)
	waitFor(d.T, "the daemon of the package", func() bool {
		a, err := get(socket, "/v1/health")
		return err == nil && a.status == http.StatusOK
	})
}

// keeps runs an action. The action must not let a packet pass that the policy drops.
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

// packageLint checks the packages of both architectures with lintian. It checks the digests, the scripts and the dependencies of the rpm package with
// rpm.
func packageLint(t *testing.T, packages string) {
	testutil.RequireTool(t, "lintian")
	foreign, dir := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH], t.TempDir()
	cmd := exec.Command("scripts/packages", testVersion, dir, foreign)
	cmd.Dir, cmd.Env = top, append(os.Environ(), "KINDS=deb")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("making packages for %s: %v\n%s", foreign, err, out)
	}
	for _, deb := range []string{filepath.Join(packages, "present.deb"), filepath.Join(packages, "lab.deb"), filepath.Join(packages, "hub.deb"), filepath.Join(packages, "bgp.deb"), filepath.Join(dir, "floodwall_0.2.0-1_"+foreign+".deb")} {
		out, err := exec.Command("lintian", "--allow-root", "--fail-on", "error,warning", deb).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "" {
			t.Errorf("lintian %s: %v\n%s", deb, err, out)
		}
	}
	testutil.RequireTool(t, "rpm")
	file := filepath.Join(packages, "present.rpm")
	if out, err := exec.Command("rpm", "--checksig", "--nosignature", file).CombinedOutput(); err != nil || !strings.Contains(string(out), "digests OK") {
		t.Errorf("rpm --checksig: %v\n%s", err, out)
	}
	for query, want := range map[string][]string{
		"--requires": {"systemd"}, "--recommends": {"nftables"},
		"--scripts": {"systemctl try-restart floodwall.service", "systemctl stop floodwall.service"},
		"--list":    {"/usr/bin/floodwall", "/usr/lib/systemd/system/floodwall-boot.service", "/usr/lib/sysusers.d/floodwall.conf"},
	} {
		out, err := exec.Command("rpm", "-qp", query, file).CombinedOutput()
		for _, text := range want {
			if err != nil || !strings.Contains(string(out), text) {
				t.Errorf("rpm -qp %s: %v, want %q in\n%s", query, err, text, out)
			}
		}
	}
}

// packagesAgain builds the packages a second time. The bytes must be the same.
func packagesAgain(t *testing.T, packages string) {
	dir := t.TempDir()
	cmd := exec.Command("scripts/packages", testVersion, dir, runtime.GOARCH)
	cmd.Dir = top
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("making packages: %v\n%s", err, out)
	}
	for kind, name := range map[string]string{"present.deb": "floodwall_*.deb", "bgp.deb": "floodwall-bgp_*.deb", "present.rpm": "floodwall-0*.rpm"} {
		again, _ := filepath.Glob(filepath.Join(dir, name))
		if out, err := exec.Command("cmp", append(again, filepath.Join(packages, kind))...).CombinedOutput(); err != nil {
			t.Errorf("%s differs: %v\n%s", kind, err, out)
		}
	}
}
