// SPDX-License-Identifier: Apache-2.0

package boot_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/test/testutil"
)

// inPackage puts the units of a package on the host.
func inPackage(t *testing.T, u boot.Units) {
	t.Helper()
	of := boot.Units{Binary: u.Binary, State: u.State, BPFFS: u.BPFFS, Daemon: true, Group: "floodwall", Packaged: true}
	if err := of.Write(filepath.Join(u.Root, "lib/systemd/system")); err != nil {
		t.Fatal(err)
	}
}

// TestUnitsBesidePackage applies with --boot on a host on which a package has the units. Only the devices of the policy may be added to the units,
// and unload must not change the units.
func TestUnitsBesidePackage(t *testing.T) {
	testutil.RequireTool(t, "systemctl")
	ctx, u := context.Background(), units(t)
	u.Devices = []string{"eth0"}
	inPackage(t, u)
	text, err := os.ReadFile(filepath.Join(u.Root, "lib/systemd/system/floodwall.service"))
	if err != nil || !strings.Contains(string(text), "\nAppArmorProfile=-floodwall-daemon\n") {
		t.Errorf("the package's daemon is not confined: %v\n%s", err, text)
	}
	if err := errors.Join(u.Refresh(ctx), u.Remove(ctx)); err != nil {
		t.Fatal(err)
	}
	wantNames(t, u)

	enabled := []string{
		"multi-user.target.wants/floodwall.service", "sys-subsystem-net-devices-eth0.device.wants/floodwall-boot.service",
		"sys-subsystem-net-devices-eth0.device.wants/floodwall-device.service", "sysinit.target.wants/floodwall-boot.service",
	}
	added := []string{"floodwall-boot.service.d/50-floodwall.conf", "floodwall-device.service.d/50-floodwall.conf"}
	install(t, u)
	wantNames(t, u, append(added, enabled...)...)
	const device = "sys-subsystem-net-devices-eth0.device"
	got := settings(t, u, "floodwall-boot.service.d/50-floodwall.conf")
	if got["Unit.After"] != device || got["Unit.Wants"] != device || len(got) != 2 {
		t.Errorf("added: %v", got)
	}
	if out, err := exec.Command("systemctl", "--root="+u.Root, "is-enabled", "floodwall-boot.service", "floodwall.service").CombinedOutput(); err != nil {
		t.Errorf("is-enabled: %v: %s", err, out)
	}

	u.Devices, u.Legacy = []string{"lo"}, true
	if err := u.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if got := settings(t, u, "floodwall.service.d/50-floodwall.conf"); got["Service.CapabilityBoundingSet"] != "CAP_NET_RAW" {
		t.Errorf("for the older iptables: %v", got)
	}
	u.Legacy = false
	if err := u.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	wantNames(t, u, added[0], added[1], "multi-user.target.wants/floodwall.service", "sysinit.target.wants/floodwall-boot.service")
	for range 2 {
		if err := u.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		wantNames(t, u)
	}
}

// TestPackageTakesOver installs a package on a host with units that a locally built program wrote. These units must stay in force until the package's
// program applies a policy. The test also covers the reverse order.
func TestPackageTakesOver(t *testing.T) {
	testutil.RequireTool(t, "systemctl")
	ctx, byPackage := context.Background(), units(t)
	byPackage.Devices = []string{"eth0"}
	byHand := byPackage
	byHand.Binary = "/bin/false"
	install(t, byHand)
	inPackage(t, byPackage)
	has := func(u boot.Units, want bool) {
		t.Helper()
		for _, name := range []string{"floodwall-boot.service", "floodwall-device.service", "floodwall.service"} {
			if _, err := os.Stat(filepath.Join(u.Root, unitDir, name)); (err == nil) != want {
				t.Errorf("%s in %s: %v, want it there: %v", name, unitDir, err, want)
			}
		}
	}
	has(byHand, true)
	if err := byPackage.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	has(byPackage, false)
	if got := settings(t, byPackage, "floodwall-boot.service.d/50-floodwall.conf")["Unit.Wants"]; !strings.Contains(got, "eth0") {
		t.Errorf("the unit of the package wants %q", got)
	}
	install(t, byHand)
	has(byHand, true)
	if _, err := os.Stat(filepath.Join(byHand.Root, unitDir, "floodwall-boot.service.d")); err == nil {
		t.Error("the additions to the package's unit stay beside the unit that hides it")
	}
	if err := byHand.Remove(ctx); err != nil {
		t.Fatal(err)
	}
	wantNames(t, byHand)
}

// TestForeignAdditions checks that Floodwall reports an error if a file of another owner has the path of its own file.
func TestForeignAdditions(t *testing.T) {
	testutil.RequireTool(t, "systemctl")
	u := units(t)
	inPackage(t, u)
	file := filepath.Join(u.Root, unitDir, "floodwall-boot.service.d/50-floodwall.conf")
	write(t, file, "[Unit]\nDescription=mine\n")
	var foreign *boot.ForeignUnitError
	if err := u.Check(); !errors.As(err, &foreign) || foreign.File != file || !strings.Contains(foreign.Hint(), "systemctl cat floodwall-boot.service`") {
		t.Errorf("%v, want that %s is foreign", err, file)
	}
}

// TestRenamedUnits has units of an earlier version with other names: its floodwall.service restored the policy. Floodwall must replace these units.
func TestRenamedUnits(t *testing.T) {
	testutil.RequireTool(t, "systemctl")
	for _, enabled := range []bool{true, false} {
		ctx, u := context.Background(), units(t)
		u.Devices = []string{"eth0"}
		install(t, u)
		systemctl := func(words ...string) {
			t.Helper()
			if out, err := exec.Command("systemctl", append([]string{"--root=" + u.Root}, words...)...).CombinedOutput(); err != nil {
				t.Fatalf("systemctl %v: %v: %s", words, err, out)
			}
		}
		systemctl("disable", "floodwall.service", "floodwall-boot.service")
		dir := filepath.Join(u.Root, unitDir)
		for _, move := range [][2]string{{"floodwall", "floodwall-daemon"}, {"floodwall-boot", "floodwall"}} {
			if err := os.Rename(filepath.Join(dir, move[0]+".service"), filepath.Join(dir, move[1]+".service")); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"floodwall-boot.service", "floodwall-device.service", "floodwall.service",
			"sys-subsystem-net-devices-eth0.device.wants/floodwall-device.service"}
		if enabled {
			systemctl("enable", "floodwall.service", "floodwall-daemon.service")
			want = append(want, "multi-user.target.wants/floodwall.service", "sysinit.target.wants/floodwall-boot.service",
				"sys-subsystem-net-devices-eth0.device.wants/floodwall-boot.service")
		}
		// While a unit of the operator has the new name, the old units must stay, so that the policy is loaded at boot.
		foreign := filepath.Join(dir, "floodwall-boot.service")
		if err := os.WriteFile(foreign, []byte("[Service]\nExecStart=/bin/true\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := u.Refresh(ctx); err == nil {
			t.Error("a unit of the operator is no error")
		}
		if got := settings(t, u, "floodwall.service")["Service.ExecStart"]; !strings.Contains(got, " --boot-restore ") {
			t.Errorf("beside a unit of the operator, floodwall.service runs %s", got)
		}
		if err := os.Remove(foreign); err != nil {
			t.Fatal(err)
		}
		if err := u.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		wantNames(t, u, want...)
		if got := settings(t, u, "floodwall.service")["Service.ExecStart"]; !strings.Contains(got, " daemon ") {
			t.Errorf("floodwall.service runs %s", got)
		}
	}
}
