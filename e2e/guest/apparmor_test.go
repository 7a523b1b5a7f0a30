// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// confined is a policy of the daemon that reads a list, and has rules at stages of XDP and of nftables.
const confined = `devices: [eth0]
default: drop
checks: off
sets:
  bans: {dynamic: true, max: 1000, timeout: 1h}
  blocked: {file: /srv/lists/blocked.txt}
rules:
  - {name: listed, from: [$blocked, $bans], then: drop}
services:
  - {name: open, port: udp/7000}
daemon: {listen: 127.0.0.1:9810}
`

// TestAppArmor runs the daemon of a package by systemd, in the unit's AppArmor profile. It must apply policies, ban, repair, and serve its API and
// page; the kernel must report no denial. A program in the profile must run those of netfilter, read no key and no password of others, and write
// and run nothing else. It boots twice, so it runs in the long form alone.
func TestAppArmor(t *testing.T) {
	if !long {
		return
	}
	h := newHost(t, func(files string) {
		top := testutil.Top(t)
		write(t, filepath.Join(files, "srv/lists/blocked.txt"), "203.0.113.7\n")
		write(t, filepath.Join(files, "etc/floodwall/policy.yaml"), confined)
		write(t, filepath.Join(files, "root/.ssh/id"), "secret\n")
		shell(t, `install -D -m 644 "$1/packaging/floodwall/apparmor" "$2/etc/apparmor.d/floodwall-daemon"`, top, files)
		units := exec.Command(filepath.Join(files, "usr/bin/floodwall"), "units", filepath.Join(files, "usr/lib/systemd/system"),
			"--binary", "/usr/bin/floodwall", "--packaged", "--group", "floodwall")
		if out, err := units.CombinedOutput(); err != nil {
			t.Fatalf("floodwall units: %v: %s", err, out)
		}
	})
	h.Must("groupadd --system floodwall && floodwall apply /etc/floodwall/policy.yaml --boot && sync")
	h.crash()
	h.settled()
	t.Log(h.Must("uname -r; cat /sys/kernel/security/lsm; systemctl status apparmor.service --no-pager | head -5; systemctl status floodwall.service --no-pager | head -20"))
	const api = "curl -sS --fail-with-body --max-time 900 -H Content-Type:application/json --unix-socket /run/floodwall/control.sock http://floodwall/v1/"
	const healthy = "for i in $(seq 120); do ! curl -fsS --unix-socket /run/floodwall/read.sock http://floodwall/v1/health || exit 0; sleep 1; done; exit 1"
	for _, line := range []string{
		"cat /proc/$(systemctl show --property MainPID --value floodwall.service)/attr/current | grep '^floodwall-daemon (enforce)$'",
		healthy,
		api + `apply -d '{"policy": "/etc/floodwall/policy.yaml", "target": "xdp", "force": true}'`,
		api + `block -d '{"prefixes": ["198.51.100.7"]}'`,
		"floodwall blocked | grep 198.51.100.7",
		"curl -fsS http://127.0.0.1:9810/ | grep -qi '<html' && curl -fsS http://127.0.0.1:9810/metrics | grep -c ^floodwall_",
		"curl -fsS 'http://127.0.0.1:9810/v1/top?for=1s' | head -c 99",
		api + `apply -d '{"policy": "/etc/floodwall/policy.yaml", "target": "nftables", "confirm": "600s"}'`,
		api + `confirm -d '{}'`,
		api + `block -d '{"prefixes": ["198.51.100.8"]}'`,
		"nft list ruleset | grep 198.51.100.8",
		"nft flush ruleset; for i in $(seq 120); do ! nft list ruleset | grep -q 198.51.100.8 || exit 0; sleep 1; done; exit 1", // the daemon repairs
	} {
		out, code := h.Command("sh", "-c", line)
		t.Logf("%s: %.900s", line, out)
		if code != 0 {
			t.Fatalf("%s: exit code %d: %s", line, code, h.Must("journalctl -b --no-pager | grep -e 'floodwall\\[' -e DENIED | tail -20"))
		}
	}
	if denied := h.Must(`journalctl -b -k --no-pager | grep 'apparmor="DENIED' || true`); denied != "" {
		t.Errorf("the kernel reports denials:\n%s", denied)
	}
	// The shell changes to the profile and does the rest itself.
	for line, allowed := range map[string]bool{
		"read x </srv/lists/blocked.txt": true,
		": >/run/floodwall/new":          true,
		"read x </root/.ssh/id":          false,
		"read x </etc/shadow":            false,
		": >>/etc/passwd":                false,
		": >/srv/lists/new":              false,
		"/usr/bin/true":                  false,
		"echo 1 >/proc/sys/kernel/panic": false,
		"/usr/sbin/nft list ruleset":     true,
		"/usr/sbin/iptables -N new && /usr/sbin/iptables-save && /usr/sbin/iptables -X new": true,
		"/usr/sbin/ipset create new hash:ip && /usr/sbin/ipset destroy new":                 true,
		"echo 1 >/proc/sys/net/ipv4/tcp_syncookies":                                         true,
	} {
		out, code := h.Command("bash", "-c", `echo "changeprofile floodwall-daemon" >/proc/self/attr/current && `+line)
		if (code == 0) != allowed || !allowed && !strings.Contains(out, "ermission denied") {
			t.Errorf("%s in the profile: exit code %d, %s", line, code, out)
		}
	}
}
