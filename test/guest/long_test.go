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

// long is the form with tests that boot several times.
var long = os.Getenv("FLOODWALL_LONG") != ""

// version is a policy that says which one it is.
func version(n int) string {
	return fmt.Sprintf("devices: [eth0]\ndefault: drop\nservices:\n  - {name: open, port: udp/7000}\n  - {name: v%d, port: udp/5353}\n", n)
}

// runs is the number of the version that decides.
func (h *host) runs() (n int) {
	h.Helper()
	for _, r := range h.status().Rules {
		if strings.HasPrefix(r.Name, "v") {
			fmt.Sscanf(r.Name, "v%d", &n)
		}
	}
	return n
}

// TestPowerCut takes the power off at random moments of applies and confirmations. The host comes up with the policy before or
// the one that was about to be saved, and is filtered from the first packet.
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

// TestOtherFirewalls boots with firewalld and nftables.service beside a policy that is in nftables itself, and has them start, stop and
// flush while the policy is in force.
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
			// firewalld.service conflicts with nftables.service in Debian 12, so systemd may start one of the two only.
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

// besides runs a command of another firewall, and waits until the daemon has put back what that removed. XDP is open at no time.
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

// rename is a unit that gives the device another name, late: systemd has then waited in vain for a device of that name.
const rename = `[Unit]
After=floodwall-boot.service network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=ip link set eth0 down
ExecStart=ip link set eth0 name late0
ExecStart=ip link set late0 up
`

// TestDeviceAfterBoot boots with a policy whose device appears when floodwall-boot.service has waited for it in vain. From the first moment on
// no packet comes in that the policy drops.
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

// before is the commit of the release that the present one replaces.
const before = "a095041"

// TestUpgrade replaces the program under a stream of packets, by a newer one and by an older one, with a daemon and a trial.
// Neither may open the host: what one does not know of the other's it refuses.
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
	// The older one has other names for its units, which the newer one takes over.
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
			// The older one refuses the copy of the newer one, whose format it does not know.
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

// install replaces the program, as `make install` does: the file is another one afterwards.
func (h *host) install(which string) {
	h.Helper()
	h.Must("cp /opt/" + which + "/floodwall /usr/bin/floodwall.new && mv /usr/bin/floodwall.new /usr/bin/floodwall")
}

// try runs a command that may refuse, and logs it.
func (h *host) try(command string) (code int) {
	h.Helper()
	out, code := h.Command("sh", "-c", command)
	h.Logf("%s: exit code %d: %s", command, code, out)
	if code != 0 && strings.Contains(command, "systemctl restart ") {
		h.Logf("%s", h.Must("journalctl -n 5 --no-pager -u 'floodwall*'"))
	}
	helps := strings.Contains(out, "floodwall: hint: ") || strings.Contains(out, "remedy ") || // the latter of `doctor`
		strings.Contains(out, "no policy is on trial") // where the other version has refused to begin it
	if code != 0 && strings.HasPrefix(command, "floodwall") && !helps {
		h.Errorf("%s: exit code %d, and no remedy: %s", command, code, out)
	}
	return code
}

// build builds the command of another commit.
func build(t *testing.T, commit, to string) {
	t.Helper()
	dir := t.TempDir()
	top := testutil.Top(t)
	script := `git -C "$1" archive "$2" | tar -x -C "$3" && cd "$3" && CGO_ENABLED=0 scripts/go build -trimpath -buildvcs=false -o "$4" ./cmd/floodwall`
	if out, err := exec.Command("bash", "-euo", "pipefail", "-c", script, "-", top, commit, dir, to).CombinedOutput(); err != nil {
		t.Fatalf("building %s (a shallow clone does not have it): %v: %s", commit, err, out)
	}
}
