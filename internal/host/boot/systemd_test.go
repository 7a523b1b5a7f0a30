// SPDX-License-Identifier: Apache-2.0

package boot_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/test/testutil"
)

// units are the units of a host that consists of a directory. eth0 and eth1 are hardware devices, and udev runs.
func units(t *testing.T) boot.Units {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "run/udev/control"), "")
	for _, d := range []string{"eth0/device", "eth1/device", "bond0", "lo"} {
		write(t, filepath.Join(root, "sys/class/net", d, "uevent"), "")
	}
	return boot.Units{
		Root: root, Binary: "/bin/true", State: "/var/lib/floodwall", BPFFS: "/sys/fs/bpf/floodwall",
		Devices: []string{"eth0", "bond0", "lo", "tun-a"}, Daemon: true,
	}
}

const unitDir = "etc/systemd/system"

func install(t *testing.T, u boot.Units) {
	t.Helper()
	if _, err := u.Install(context.Background()); err != nil {
		t.Fatalf("install: %v", err)
	}
}

// settings returns the settings of a unit, by section and name: "Unit.After". The test fails if systemd does not know a line.
func settings(t *testing.T, u boot.Units, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(u.Root, unitDir, name))
	if err != nil {
		t.Fatal(err)
	}
	found, section := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "", strings.HasPrefix(line, "#"):
		case line == "[Unit]", line == "[Service]", line == "[Install]":
			section = strings.Trim(line, "[]")
		case ok && key == "SystemCallFilter": // lines with this key add up
			found[section+"."+key] = strings.TrimSpace(found[section+"."+key] + " " + value)
		case !ok, value == "", strings.TrimSpace(line) != line, found[section+"."+key] != "":
			t.Errorf("%s: bad line %q", name, line)
		default:
			found[section+"."+key] = value
		}
	}
	return found
}

func TestFilterUnit(t *testing.T) {
	testutil.RequireTool(t, "systemctl")
	u := units(t)
	install(t, u)
	const firewalls = "nftables.service iptables.service ip6tables.service netfilter-persistent.service ipset.service " +
		"ufw.service firewalld.service shorewall.service shorewall6.service"
	const options = " --state=/var/lib/floodwall --bpffs=/sys/fs/bpf/floodwall"
	want := map[string]string{
		"Unit.Description":         "Floodwall: the policy that was confirmed last",
		"Unit.DefaultDependencies": "no",
		"Unit.Wants":               "network-pre.target sys-subsystem-net-devices-eth0.device",
		"Unit.After": "local-fs.target systemd-tmpfiles-setup.service systemd-modules-load.service systemd-sysctl.service " + firewalls +
			" sys-subsystem-net-devices-eth0.device",
		"Unit.Before":                      "network-pre.target",
		"Unit.ConditionPathIsSymbolicLink": "/var/lib/floodwall/boot/current",
		"Unit.StartLimitIntervalSec":       "0",
		"Service.Type":                     "oneshot",
		"Service.RemainAfterExit":          "yes",
		"Service.TimeoutStartSec":          "2min",
		"Service.ExecStart":                "/bin/true apply --boot-restore" + options,
		"Service.ExecReload":               "/bin/true apply --boot-restore" + options,
		"Install.WantedBy": "sysinit.target sys-subsystem-net-devices-eth0.device " +
			`sys-subsystem-net-devices-bond0.device sys-subsystem-net-devices-tun\x2da.device`,
	}
	if diff := cmp.Diff(want, unsandboxed(settings(t, u, "floodwall-boot.service"))); diff != "" {
		t.Errorf("floodwall-boot.service (-want +got):\n%s", diff)
	}
	const devices = `sys-subsystem-net-devices-eth0.device sys-subsystem-net-devices-bond0.device sys-subsystem-net-devices-tun\x2da.device`
	want = map[string]string{
		"Unit.Description":                 "Floodwall: the policy on a device that returns",
		"Unit.DefaultDependencies":         "no",
		"Unit.After":                       "floodwall-boot.service",
		"Unit.ConditionPathIsSymbolicLink": "/var/lib/floodwall/boot/current",
		"Unit.StartLimitIntervalSec":       "0",
		"Service.Type":                     "oneshot", // without RemainAfterExit, because the unit must be started each time
		"Service.TimeoutStartSec":          "2min",
		"Service.ExecStart":                "/bin/true repair --boot-restore" + options,
		"Install.WantedBy":                 devices,
	}
	if diff := cmp.Diff(want, unsandboxed(settings(t, u, "floodwall-device.service"))); diff != "" {
		t.Errorf("floodwall-device.service (-want +got):\n%s", diff)
	}
	if got := settings(t, u, "floodwall.service")["Service.ExecStart"]; got != "/bin/true daemon"+options {
		t.Errorf("the daemon is started as %q", got)
	}
}

// unsandboxed removes the settings that all units have in common.
func unsandboxed(settings map[string]string) map[string]string {
	maps.DeleteFunc(settings, func(key, _ string) bool {
		for _, begin := range []string{"CapabilityBoundingSet", "NoNew", "Protect", "ReadOnly", "ReadWrite", "Private", "Lock", "MemoryDeny", "Restrict", "SystemCall", "UMask"} {
			if strings.HasPrefix(key, "Service."+begin) {
				return true
			}
		}
		return false
	})
	return settings
}

// TestSandbox checks with systemd-analyze that the exposure of each unit is at most 3.0 of 10.
func TestSandbox(t *testing.T) {
	testutil.RequireTool(t, "systemd-analyze")
	u := units(t)
	u.Group = "floodwall"
	install(t, u)
	for _, name := range []string{"floodwall-boot.service", "floodwall-device.service", "floodwall.service"} {
		out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager",
			filepath.Join(u.Root, unitDir, name)).CombinedOutput()
		_, level, _ := strings.Cut(string(out), "Overall exposure level for "+name+": ")
		if err != nil || level == "" {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		t.Logf("%s: exposure %s", name, strings.TrimSpace(level))
		got := settings(t, u, name)
		if got := got["Service.CapabilityBoundingSet"]; got != "CAP_BPF CAP_NET_ADMIN CAP_PERFMON" {
			t.Errorf("%s has the capabilities %s", name, got)
		}
		if stop := got["Service.ExecStop"] + got["Service.ExecStopPost"]; stop != "" {
			t.Errorf("to stop %s runs %s", name, stop)
		}
	}
	u.Legacy, u.State = true, "/var/lib/floodwall"
	install(t, u)
	if got := settings(t, u, "floodwall.service")["Service.StateDirectory"]; got != "floodwall" {
		t.Errorf("before the first apply systemd makes the state directory %q below /var/lib for the daemon", got)
	}
	if got := settings(t, u, "floodwall.service")["Service.CapabilityBoundingSet"]; !strings.Contains(got, "CAP_NET_RAW") {
		t.Errorf("with the older iptables the daemon has the capabilities %s", got)
	}
}

// TestSandboxBGP checks the unit of the process that parses data from the network. systemd-analyze must report an exposure of at most 1.5, and the
// unit must have no capability.
func TestSandboxBGP(t *testing.T) {
	testutil.RequireTool(t, "systemd-analyze")
	const unit = "../../../packaging/floodwall-bgp/floodwall-bgp.service"
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", unit).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Overall exposure level") {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(unit)
	for _, line := range []string{"DynamicUser=yes", "CapabilityBoundingSet=\n", "NoNewPrivileges=yes", "Restart=always"} {
		if err != nil || !strings.Contains(string(text), line) {
			t.Errorf("%v: the unit lacks %q", err, line)
		}
	}
	verify := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
	verify.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH=/lib/systemd/system")
	if out, _ := verify.CombinedOutput(); strings.Contains(strings.ReplaceAll(string(out), "/usr/bin/floodwall is not executable", ""), "nknown") {
		t.Errorf("systemd does not know: %s", out)
	}
}

// TestNoUdev has a host on which no device unit ever starts. A unit that waits for a device unit would delay the network.
func TestNoUdev(t *testing.T) {
	testutil.RequireTool(t, "systemctl")
	u := units(t)
	if err := os.Remove(filepath.Join(u.Root, "run/udev/control")); err != nil {
		t.Fatal(err)
	}
	install(t, u)
	if got := settings(t, u, "floodwall-boot.service")["Unit.Wants"]; got != "network-pre.target" {
		t.Errorf("without udev the unit wants %s", got)
	}
}

// TestSystemdUnderstands checks the units with systemd-analyze, also with names that need quoting.
func TestSystemdUnderstands(t *testing.T) {
	testutil.RequireTool(t, "systemd-analyze")
	u := units(t)
	for _, row := range []struct{ state, binary string }{
		{"/var/lib/floodwall", "/bin/true"},
		{`/srv/my state/50% "of" it\$HOME'`, filepath.Join(t.TempDir(), `a %n b`)},
	} {
		u.State, u.Binary = row.state, row.binary
		if u.Binary != "/bin/true" {
			if err := os.Symlink("/bin/true", u.Binary); err != nil {
				t.Fatal(err)
			}
		}
		u.Root = t.TempDir()
		install(t, u)
		for _, unit := range []string{"floodwall-boot.service", "floodwall-device.service", "floodwall.service"} {
			cmd := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
				filepath.Join(u.Root, unitDir, unit))
			cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+filepath.Join(u.Root, unitDir)+":/lib/systemd/system")
			if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "floodwall") {
				text, _ := os.ReadFile(filepath.Join(u.Root, unitDir, unit))
				t.Errorf("systemd-analyze verify %s: %v\n%s\n%s", unit, err, out, text)
			}
		}
	}
}

// names lists the files below the directory of units.
func names(t *testing.T, u boot.Units) (list []string) {
	t.Helper()
	dir := filepath.Join(u.Root, unitDir)
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			list = append(list, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return list
}

func wantNames(t *testing.T, u boot.Units, want ...string) {
	t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, names(t, u)); diff != "" {
		t.Errorf("units (-want +got):\n%s", diff)
	}
}

// TestLifeOfUnits installs, changes and removes units, with the help of systemctl.
func TestLifeOfUnits(t *testing.T) {
	testutil.RequireTool(t, "systemctl")
	ctx, u := context.Background(), units(t)
	u.Devices, u.Daemon = []string{"eth0"}, false
	if err := u.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	wantNames(t, u)
	install(t, u)
	wantNames(t, u, "floodwall-device.service", "floodwall-boot.service",
		"sys-subsystem-net-devices-eth0.device.wants/floodwall-device.service",
		"sys-subsystem-net-devices-eth0.device.wants/floodwall-boot.service", "sysinit.target.wants/floodwall-boot.service")

	file := filepath.Join(u.Root, unitDir, "floodwall-boot.service")
	before, err := os.Stat(file)
	if err != nil || before.Mode() != 0o644 {
		t.Fatalf("the unit: %v (%v), want mode 0644", before, err)
	}
	install(t, u)
	if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
		t.Errorf("a unit that is right was written again (%v)", err)
	}

	u.Devices = []string{"eth1"}
	if err := u.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	wantNames(t, u, "floodwall-device.service", "floodwall-boot.service",
		"sys-subsystem-net-devices-eth1.device.wants/floodwall-device.service",
		"sys-subsystem-net-devices-eth1.device.wants/floodwall-boot.service", "sysinit.target.wants/floodwall-boot.service")

	if out, err := exec.Command("systemctl", "--root="+u.Root, "disable", "floodwall-boot.service", "floodwall-device.service").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	u.Devices = []string{"eth0"}
	if err := u.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	wantNames(t, u, "floodwall-device.service", "floodwall-boot.service") // a unit that the operator has disabled stays disabled
	if !strings.Contains(settings(t, u, "floodwall-boot.service")["Install.WantedBy"], "eth0") {
		t.Error("the disabled unit was not brought up to date")
	}

	u.Daemon = true
	install(t, u)
	wantNames(t, u, "floodwall.service", "floodwall-device.service", "floodwall-boot.service",
		"multi-user.target.wants/floodwall.service", "sys-subsystem-net-devices-eth0.device.wants/floodwall-device.service",
		"sys-subsystem-net-devices-eth0.device.wants/floodwall-boot.service", "sysinit.target.wants/floodwall-boot.service")
	for range 2 {
		if err := u.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		wantNames(t, u)
	}
}

// TestForeignUnits checks that Floodwall does not change units that do not belong to this instance.
func TestForeignUnits(t *testing.T) {
	testutil.RequireTool(t, "systemctl")
	for want, occupy := range map[string]func(u boot.Units, file string) error{
		"was not written by floodwall": func(_ boot.Units, file string) error {
			return os.WriteFile(file, []byte("[Unit]\nDescription=mine\n"), 0o644)
		},
		"it is masked":              func(_ boot.Units, file string) error { return os.Symlink("/dev/null", file) },
		"it is a link to /nowhere":  func(_ boot.Units, file string) error { return os.Symlink("/nowhere", file) },
		"that of another instance ": func(u boot.Units, _ string) error { u.State = "/other"; return installed(u) },
	} {
		t.Run(want, func(t *testing.T) {
			u := units(t)
			file := filepath.Join(u.Root, unitDir, "floodwall-boot.service")
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := occupy(u, file); err != nil {
				t.Fatal(err)
			}
			before := names(t, u)
			for _, err := range []error{u.Check(), installed(u), u.Refresh(context.Background())} {
				var foreign *boot.ForeignUnitError
				if !errors.As(err, &foreign) || foreign.File != file || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want that %s %s", err, file, want)
				}
			}
			if err := u.Remove(context.Background()); err != nil {
				t.Errorf("remove: %v", err)
			}
			wantNames(t, u, before...)
		})
	}
}

func installed(u boot.Units) error {
	_, err := u.Install(context.Background())
	return err
}

// TestNoSystemd has a host with another init system.
func TestNoSystemd(t *testing.T) {
	u := units(t)
	t.Setenv("PATH", t.TempDir())
	for _, err := range []error{u.Check(), installed(u)} {
		var none *boot.NoSystemdError
		if !errors.As(err, &none) || !strings.Contains(none.Hint(), "`"+u.Restore()+"`") {
			t.Errorf("without systemctl: %v, want a NoSystemdError with the command", err)
		}
	}
	wantNames(t, u)
	if err := u.Remove(context.Background()); err != nil {
		t.Errorf("remove: %v", err)
	}
}

func TestBadPaths(t *testing.T) {
	for _, spoil := range []func(u *boot.Units){
		func(u *boot.Units) { u.State = "state" },
		func(u *boot.Units) { u.BPFFS = "/sys\nExecStart=/bin/sh" },
		func(u *boot.Units) { u.Binary = "/nowhere/floodwall" },
		func(u *boot.Units) { u.Binary = "/bin/$HOME" },
	} {
		u := units(t)
		spoil(&u)
		if err := installed(u); err == nil {
			t.Errorf("units of %q, %q, %q were installed", u.State, u.BPFFS, u.Binary)
		}
		wantNames(t, u)
	}
}

// TestTellsSystemd simulates a running systemd, and checks the calls of systemctl.
func TestTellsSystemd(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	for _, dir := range []string{"/run", "/etc/systemd/system"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			t.Fatal(err)
		}
	}
	bin := t.TempDir()
	calls := filepath.Join(bin, "calls")
	write(t, filepath.Join(bin, "systemctl"), "#!/bin/sh\necho \"$*\" >>"+calls+"\n[ \"$*\" != \"$FAIL\" ] || { echo no; exit 3; }\n")
	if err := os.Chmod(filepath.Join(bin, "systemctl"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	said := func() string {
		t.Helper()
		text, err := os.ReadFile(calls)
		if err != nil {
			t.Fatal(err)
		}
		os.Remove(calls)
		return string(text)
	}
	ctx := context.Background()
	u := boot.Units{Binary: "/bin/true", State: "/var/lib/floodwall", BPFFS: "/sys/fs/bpf/floodwall", Devices: []string{"fw0"}}
	notes, err := u.Install(ctx)
	if got := said(); err != nil || got != "reenable floodwall-boot.service floodwall-device.service\n" {
		t.Errorf("install where systemd does not run: %v, systemctl %s", err, got)
	}
	if all := strings.Join(notes, "\n"); !strings.Contains(all, "systemd does not run here") {
		t.Errorf("notes: %s", all)
	}
	if err := os.MkdirAll("/run/systemd/system", 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = os.Readlink("/proc/1/ns/net")
	seen := err == nil // otherwise it is unknown whether this is the host's network
	notes, err = u.Install(ctx)
	if got := said(); err != nil || got != "daemon-reload\nreenable floodwall-boot.service floodwall-device.service\n" {
		t.Errorf("install: %v, systemctl %s", err, got)
	}
	if all := strings.Join(notes, "\n"); strings.Contains(all, "systemd does not run") || strings.Contains(all, "network namespace") != seen {
		t.Errorf("notes: %s", all)
	}
	t.Setenv("FAIL", "daemon-reload")
	if _, err := u.Install(ctx); err == nil || err.Error() != "systemctl daemon-reload: exit status 3: no" {
		t.Errorf("install when systemctl fails: %v", err)
	}
	said()
	t.Setenv("FAIL", "")
	if err := u.Remove(ctx); err != nil || said() != "disable --now floodwall-device.service\ndaemon-reload\ndisable --now floodwall-boot.service\ndaemon-reload\n" {
		t.Errorf("remove: %v", err)
	}
}
