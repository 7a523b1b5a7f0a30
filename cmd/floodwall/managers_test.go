// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// managers is a Debian system with other firewall managers. It is the root directory of the processes that a test starts.
type managers struct {
	*watch
	root string
}

// managersVar is the environment variable with the directory of the Debian system, for the process inside the namespaces.
const managersVar = "FLOODWALL_TEST_MANAGERS"

// managersRoot returns the directory that scripts/debian makes. No test changes its files.
func managersRoot(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(managersVar); dir != "" {
		return dir
	}
	dir := testutil.Debian(t, "managers")
	os.Setenv(managersVar, dir)
	return dir
}

// newManagers makes the system with a system bus. Changes to the system are stored in memory.
func newManagers(w *watch, lower string) *managers {
	w.Helper()
	m := &managers{w, chrooted(w.T, lower)}
	m.in("sed s,.user.messagebus./user.,, /usr/share/dbus-1/system.conf >/usr/share/dbus-1/test.conf") // the bus runs as root, because a test may not be allowed to drop privileges
	m.start("dbus-daemon --config-file=/usr/share/dbus-1/test.conf --nofork --nopidfile", "[ -S /run/dbus/system_bus_socket ]")
	// The managers must accept packets, so that only Floodwall drops them.
	m.in("firewall-offline-cmd -q --set-default-zone=trusted; ufw default allow incoming")
	return m
}

// command returns a shell command that runs as root in the Debian system.
func (m *managers) command(line string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-e", "-c", line)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: m.root, Credential: &syscall.Credential{}, Setpgid: true}
	return cmd
}

// in runs commands in the system.
func (m *managers) in(line string) {
	m.Helper()
	if out, err := m.command(line).CombinedOutput(); err != nil {
		m.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// start starts a service in the Debian system, and waits until it is ready. The returned function stops the service as systemd does.
func (m *managers) start(line, ready string) (stop func()) {
	m.Helper()
	cmd := m.command("exec " + line)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	over := make(chan struct{})
	go func() { cmd.Wait(); close(over) }()
	stop = func() {
		cmd.Process.Signal(syscall.SIGTERM)
		<-over
	}
	m.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-over
	})
	for deadline := time.Now().Add(filteredAgain); ; time.Sleep(200 * time.Millisecond) {
		said, err := m.command(ready).CombinedOutput()
		if err == nil {
			return stop
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(m.root, "var/log/firewalld"))
			m.Fatalf("%s is not ready: %v\n%s\nit says: %s%s", line, err, said, &out, log)
		}
	}
}

// TestBesideManagers runs other firewall managers of Debian on a host with a policy and the daemon: ufw, firewalld, Docker, and the scripts of
// nftables.service and netfilter-persistent. After each action the policy must be complete again. XDP must filter all the time.
func TestBesideManagers(t *testing.T) {
	if !testutil.Long() {
		return
	}
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		t.Run(target, func(t *testing.T) {
			root := managersRoot(t)
			if inside(t) {
				beside(t, target, root)
			}
		})
	}
}

// beside runs TestBesideManagers on one target.
func beside(t *testing.T, target, root string) {
	w := newWatch(t)
	m := newManagers(w, root)
	w.arrives()
	mustFloodwall(t, "apply", w.policy, "--target", target)
	w.filtered()
	w.daemon()
	var firewalld, dockerd func()
	startFirewalld := func() { firewalld = m.start("firewalld --nofork --nopid", "firewall-cmd --state") }
	startDocker := func() {
		dockerd = m.start("dockerd --storage-driver vfs -H unix:///run/docker.sock", "docker info")
	}
	for _, row := range []struct {
		name string
		do   func()
	}{
		{"ufw enable", func() { m.in("ufw --force enable") }},
		{"ufw reload", func() { m.in("ufw reload") }},
		{"ufw-init flush-all", func() { m.in("/lib/ufw/ufw-init flush-all") }},
		{"ufw disable", func() { m.in("ufw disable") }},
		{"firewalld starts", startFirewalld},
		{"firewall-cmd --reload", func() { m.in("firewall-cmd --reload") }},
		{"firewall-cmd --complete-reload", func() { m.in("firewall-cmd --complete-reload") }},
		{"firewalld restarts", func() { firewalld(); startFirewalld() }},
		{"Docker starts beside firewalld", startDocker},
		{"firewall-cmd --reload beside Docker", func() { m.in("firewall-cmd --reload") }},
		{"Docker stops", func() { dockerd() }},
		{"firewalld stops", func() { firewalld() }},
		{"firewalld with iptables", func() {
			m.in("sed -i 's/^FirewallBackend=.*/FirewallBackend=iptables/' /etc/firewalld/firewalld.conf")
			startFirewalld()
		}},
		{"firewall-cmd --reload with iptables", func() { m.in("firewall-cmd --reload") }},
		{"firewalld with iptables stops", func() { firewalld() }},
		{"Docker starts", startDocker},
		{"Docker restarts", func() { dockerd(); startDocker() }},
		{"nftables.service starts", func() { m.in("nft -f /etc/nftables.conf") }},
		{"nftables.service reloads", func() { m.in("nft -f /etc/nftables.conf") }},
		{"nftables.service stops", func() { m.in("nft flush ruleset") }},
		{"netfilter-persistent restarts", func() { m.in("iptables-save >/tmp/saved; iptables-restore </tmp/saved") }},
		{"netfilter-persistent starts, without rules of ours", func() {
			m.in("iptables-save | sed /[Ff][Ll][Oo][Oo][Dd][Ww][Aa][Ll][Ll]/d >/tmp/saved; iptables-restore </tmp/saved")
		}},
	} {
		if passed := w.event(target+": "+row.name, row.do); passed > 0 && target == "xdp" {
			t.Errorf("%s: %d packets passed XDP", row.name, passed)
		}
	}
}
