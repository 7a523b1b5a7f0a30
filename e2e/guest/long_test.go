// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// long reports whether the tests run in the long form. In this form machines boot several times.
var long = os.Getenv("FLOODWALL_LONG") != ""

// version returns a policy in which the name of a service contains the number n.
func version(n int) string {
	return fmt.Sprintf("devices: [eth0]\ndefault: drop\nservices:\n  - {name: open, port: udp/7000}\n  - {name: v%d, port: udp/5353}\n", n)
}

// runs returns the number n of the policy in force, as version has set it.
func (h *host) runs() (n int) {
	h.Helper()
	for _, r := range h.status().Rules {
		if strings.HasPrefix(r.Name, "v") {
			fmt.Sscanf(r.Name, "v%d", &n)
		}
	}
	return n
}

// TestPowerCut cuts the power at random moments during applies and confirmations. After the boot, the previous policy or the new one must be in force
// from the first packet on.
func TestPowerCut(t *testing.T) {
	if !long {
		return
	}
	random := testutil.Random(t)
	h := newHost(t, nil)
	h.Write("/tmp/v0.yaml", version(0))
	h.Must("floodwall apply /tmp/v0.yaml --boot")
	last := 0
	for n := 1; n <= 6; n++ {
		file := fmt.Sprintf("/tmp/v%d.yaml", n)
		h.Write(file, version(n))
		words := []string{"floodwall", "apply", file}
		if n%2 == 0 {
			h.Must("floodwall apply " + file + " --confirm 1h")
			words = []string{"floodwall", "confirm"}
		}
		h.Begin(words...)
		time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
		h.crash()
		h.closed(fmt.Sprintf("round %d", n))
		got := h.runs()
		if got != last && got != n {
			t.Errorf("round %d: version %d came up, want %d or %d", n, got, last, n)
		}
		last = got
	}
}

// TestOtherFirewalls boots with firewalld, nftables.service and a policy, once with the policy in nftables and once in XDP. Then it starts, stops and
// reloads these services while the policy is in force.
func TestOtherFirewalls(t *testing.T) {
	if !long {
		return
	}
	for _, target := range []string{"nftables", "xdp"} {
		t.Run(target, func(t *testing.T) {
			h := newHost(t, nil)
			h.Write("/tmp/v1.yaml", version(1))
			h.Must("floodwall apply /tmp/v1.yaml --boot --target " + target)
			h.Must("systemctl -q unmask firewalld; systemctl -q enable firewalld nftables; firewall-offline-cmd -q --set-default-zone=trusted")
			h.Reboot("systemctl", "reboot")
			h.closed("with other firewalls")
			h.settled()
			// firewalld.service conflicts with nftables.service in Debian 12, so systemd may start only one of the two.
			if got := strings.Fields(h.Must("systemctl is-active firewalld nftables floodwall-boot || true")); len(got) != 3 ||
				!slices.Contains(got[:2], "active") || got[2] != "active" {
				t.Errorf("services: %s", got)
			}
			if s := h.status(); s.Target != target || h.runs() != 1 {
				t.Errorf("status: %+v", s)
			}
			h.closed("with other firewalls, when all have started")
			h.Must("systemctl start floodwall")
			for _, command := range []string{ // starting one of the two stops the other
				"start firewalld", "restart firewalld", "stop firewalld", "start nftables", "reload nftables", "restart nftables", "stop nftables",
			} {
				h.besides(target, "systemctl "+command)
			}
		})
	}
}

// besides runs a command that controls another firewall, and waits until the daemon has restored everything that the command removed. XDP must filter
// all the time.
func (h *host) besides(target, command string) {
	h.Helper()
	before, began := h.received(closedPort), time.Now()
	h.Must(command)
	for {
		out, code := h.Command("floodwall", "status")
		if code == 0 {
			break
		}
		if time.Since(began) > 3*time.Minute {
			h.Fatalf("%s: the policy is not put back: %s", command, out)
		}
	}
	h.served()
	closed := h.received(closedPort)
	h.Logf("%s: %d packets passed that the policy drops", command, closed-before)
	if target == "xdp" && closed > before {
		h.Errorf("%s: %d packets passed XDP that it drops", command, closed-before)
	}
	h.served()
	if n := h.received(closedPort) - closed; n > 0 {
		h.Errorf("%s: status says that the policy is whole, and %d more packets passed that it drops", command, n)
	}
}

// rename is a unit that renames the device late in the boot. At that time, systemd has already stopped waiting for a device of the new name.
const rename = `[Unit]
After=floodwall-boot.service network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=ip link set eth0 down
ExecStart=ip link set eth0 name late0
ExecStart=ip link set late0 up
`

// TestDeviceAfterBoot boots with a policy whose device appears late: floodwall-boot.service has already stopped waiting for it. From the device's
// first moment on, the host must still receive no packet that the policy drops.
func TestDeviceAfterBoot(t *testing.T) {
	if !long {
		return
	}
	h := newHost(t, func(files string) {
		units := filepath.Join(files, "etc/systemd/system")
		write(t, filepath.Join(units, "rename.service"), rename)
		link(t, "/etc/systemd/system/rename.service", filepath.Join(units, "multi-user.target.wants/rename.service"))
		write(t, filepath.Join(files, "etc/systemd/network/10-eth0.network"), strings.Replace(network, "eth0", "late0", 1))
	})
	h.Must("systemctl start rename || { systemctl status rename; journalctl -u rename; false; }")
	h.served()
	h.Write("/tmp/v1.yaml", strings.Replace(version(1), "eth0", "late0", 1))
	h.Must("floodwall apply /tmp/v1.yaml --boot")
	h.Reboot("systemctl", "reboot")
	h.closed("when the device has appeared")
	h.Logf("%s", h.Must("journalctl -b -u 'floodwall*' -u rename --no-pager -o short-monotonic | tail -30"))
	if h.runs() != 1 {
		t.Errorf("version %d runs", h.runs())
	}
	h.Must("for i in $(seq 100); do nft list tables | grep -q floodwall-late || exit 0; sleep 2; done; nft list tables; exit 1")
}

// before is the commit of the previous release.
const before = "a095041"

// TestUpgrade upgrades and downgrades Floodwall with a daemon and a policy on trial, while packets arrive. At no time may the host be open. If a
// version does not know the format of the other version's state, it must refuse the state.
func TestUpgrade(t *testing.T) {
	if !long {
		return
	}
	h := newHost(t, func(files string) {
		build(t, before, filepath.Join(files, "opt/old/floodwall"))
		Build(t, "./cmd/floodwall", filepath.Join(files, "opt/new/floodwall"))
	})
	h.Write("/tmp/v1.yaml", version(1))
	h.install("old")
	h.Must("floodwall apply /tmp/v1.yaml --boot && systemctl start floodwall-daemon")
	h.served()
	passed := h.received(closedPort)
	trial := 2
	// The units of the older version have other names. The newer version replaces these units.
	const (
		units   = "unit() { [ ! -e /etc/systemd/system/$1.service ] && echo $2 || echo $1; }; "
		restart = units + "systemctl restart $(unit floodwall-boot floodwall)"
		daemon  = "$(unit floodwall-daemon floodwall)"
	)
	for _, next := range []string{"new", "old", "new"} {
		file := fmt.Sprintf("/tmp/v%d.yaml", trial)
		h.Write(file, version(trial))
		h.try("floodwall apply " + file + " --confirm 1h")
		h.install(next)
		for _, command := range []string{
			units + "systemctl restart " + daemon, restart, "floodwall status", "floodwall doctor", "floodwall confirm",
			"floodwall apply " + file, units + "systemctl is-active " + daemon,
		} {
			code := h.try(command)
			// The older version does not know the format of the policy that the newer version saved. It must refuse this policy.
			if command == restart && (code != 0) != (next == "old") {
				t.Errorf("%s installed, %s: exit code %d", next, command, code)
			}
			h.served()
			if n := h.received(closedPort) - passed; n > 0 {
				t.Errorf("%s installed, %s: %d packets that the policy drops were received", next, command, n)
				passed += n
			}
		}
		trial++
	}
	h.Reboot("systemctl", "reboot")
	h.closed("after upgrade, downgrade and upgrade")
	h.settled()
	h.Logf("version %d", h.runs())
}

// install replaces the program by a new file, as `make install` does, so that a running program keeps its old file.
func (h *host) install(which string) {
	h.Helper()
	h.Must("cp /opt/" + which + "/floodwall /usr/bin/floodwall.new && mv /usr/bin/floodwall.new /usr/bin/floodwall")
}

// try runs a command that may fail, and logs its output. If a floodwall command fails, its output must contain a remedy.
func (h *host) try(command string) (code int) {
	h.Helper()
	out, code := h.Command("sh", "-c", command)
	h.Logf("%s: exit code %d: %s", command, code, out)
	if code != 0 && strings.Contains(command, "systemctl restart ") {
		h.Logf("%s", h.Must("journalctl -n 5 --no-pager -u 'floodwall*'"))
	}
	helps := strings.Contains(out, "floodwall: hint: ") || strings.Contains(out, "remedy ") || // "remedy" is in the output of `doctor`
		strings.Contains(out, "no policy is on trial") // if the other version has refused to begin the trial
	if code != 0 && strings.HasPrefix(command, "floodwall") && !helps {
		h.Errorf("%s: exit code %d, and no remedy: %s", command, code, out)
	}
	return code
}

// build builds floodwall from another commit.
func build(t *testing.T, commit, to string) {
	t.Helper()
	dir := t.TempDir()
	top := testutil.Top(t)
	script := `git -C "$1" archive "$2" | tar -x -C "$3" && cd "$3" && CGO_ENABLED=0 GOWORK=off scripts/go build -trimpath -buildvcs=false -o "$4" ./cmd/floodwall`
	if out, err := exec.Command("bash", "-euo", "pipefail", "-c", script, "-", top, commit, dir, to).CombinedOutput(); err != nil {
		t.Fatalf("building %s (a shallow clone does not have it): %v: %s", commit, err, out)
	}
}
