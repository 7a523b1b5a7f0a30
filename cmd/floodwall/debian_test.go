// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// debian is a Debian system with systemd. It uses the network namespace of the test, and other namespaces of its own. scripts/debian makes the file
// system. Changes to the file system are stored in memory.
type debian struct {
	*testing.T
	dir     string // the tmpfs; root is the system's root directory
	cgroup  string
	process *exec.Cmd
	systemd int // process ID of systemd, as this test sees it
}

// prepareDebian mounts the file system of one Debian system. It outlives kill, so boot may be called again.
const prepareDebian = `
mount -t tmpfs debian DIR
mkdir DIR/upper DIR/work DIR/root DIR/cgroup
mount -t overlay debian -o lowerdir=LOWER,upperdir=DIR/upper,workdir=DIR/work DIR/root
mount -t cgroup2 cgroup2 DIR/cgroup
cd DIR/root/etc/systemd/system
rm -rf -- *.wants
for unit in systemd-sysctl systemd-modules-load systemd-udevd systemd-random-seed systemd-networkd systemd-logind dbus systemd-binfmt; do
	ln -sf /dev/null $unit.service
done
mkdir -p ../../../opt/test
echo 'force-unsafe-io' >../../dpkg/dpkg.cfg.d/test`

// bootDebian creates the namespaces and starts systemd. /sys and /proc/sys are read-only, because they belong to the machine. Only the part of the
// network namespace is writable.
const bootDebian = `
mkdir DIR/cgroup/NAME
echo $$ >DIR/cgroup/NAME/cgroup.procs
exec unshare --pid --fork --mount --cgroup --uts --ipc --kill-child sh -euc '
	cd DIR/root
	mount -t proc proc proc
	mount --bind proc/sys/net proc/sys/net
	mount --bind proc/sys proc/sys
	mount -o remount,ro,bind proc/sys
	mount --bind /proc/sys/net proc/sys/net
	mount -t sysfs -o ro sysfs sys
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	mount -t bpf bpf sys/fs/bpf
	mount -t tmpfs run run
	mount -t tmpfs -o mode=755 dev dev
	for n in null zero full random urandom tty; do
		touch dev/$n
		mount --bind /dev/$n dev/$n
	done
	mkdir dev/pts dev/shm
	mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
	ln -s pts/ptmx dev/ptmx
	ln -s /proc/self/fd dev/fd
	hostname debian
	exec chroot . env -i container=floodwall-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd \
		--system --unit=multi-user.target --log-target=journal --show-status=no'`

// newDebian boots the system.
func newDebian(t *testing.T, lower string) *debian {
	t.Helper()
	d := &debian{T: t, dir: t.TempDir()}
	d.script(strings.ReplaceAll(prepareDebian, "LOWER", lower))
	t.Cleanup(func() {
		if t.Failed() && d.systemd != 0 {
			logged, _ := d.run("journalctl -o short-monotonic -u 'floodwall*' -n 60")
			t.Log(logged)
		}
		d.kill()
		d.script("umount --recursive --lazy DIR")
	})
	d.boot()
	return d
}

// script runs a script outside of the system.
func (d *debian) script(text string) {
	d.Helper()
	cmd := d.shell(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		d.Fatalf("making a Debian system: %v\n%s", err, out)
	}
}

func (d *debian) shell(text string) *exec.Cmd {
	text = strings.NewReplacer("DIR", d.dir, "NAME", filepath.Base(d.cgroup)).Replace(text)
	cmd := exec.Command("bash", "-euc", text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{}, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// boot starts systemd, and waits until it has started all enabled units.
func (d *debian) boot() {
	d.Helper()
	d.cgroup = filepath.Join(d.dir, "cgroup", fmt.Sprintf("floodwall-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	d.process = d.shell(bootDebian)
	console, err := os.Create(filepath.Join(d.dir, "console"))
	if err != nil {
		d.Fatal(err)
	}
	defer console.Close()
	d.process.Stdout, d.process.Stderr = console, console
	if err := testutil.Start(d.process); err != nil {
		d.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", d.process.Process.Pid))
		fmt.Sscan(string(children), &d.systemd)
		if out, _ := d.run("systemctl is-system-running --wait"); strings.HasPrefix(out, "running") || strings.HasPrefix(out, "degraded") {
			return
		}
		if time.Now().After(deadline) {
			d.kill()
			d.Fatalf("systemd does not start: %s", d.console())
		}
	}
}

// console returns the output of systemd and the end of its log.
func (d *debian) console() string {
	text, _ := os.ReadFile(filepath.Join(d.dir, "console"))
	logged, _ := d.run("journalctl -o cat -n 40")
	return string(text) + logged
}

// kill ends the system at once, like a power failure. Its mount namespace ends, and so do the objects in its BPF file system.
func (d *debian) kill() {
	if d.process == nil || d.process.Process == nil {
		return
	}
	d.process.Process.Kill() // --kill-child then kills systemd and all processes of its namespace
	d.process.Wait()
	d.process, d.systemd = nil, 0
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if exec.Command("find", d.cgroup, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").Run() == nil {
			return
		}
	}
	d.Errorf("%s is left", d.cgroup)
}

// run runs a command line in the system, and returns its output.
func (d *debian) run(line string) (string, error) {
	cmd := exec.Command("nsenter", "--target", fmt.Sprint(d.systemd), "--mount", "--pid", "--cgroup", "--ipc", "--uts", "--root", "--wd",
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "sh", "-ec", line)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must runs a command line that must succeed, and returns its output.
func (d *debian) must(line string) string {
	d.Helper()
	out, err := d.run(line)
	if err != nil {
		d.Fatalf("%s: %v\n%s\nsystemd:\n%s", line, err, out, d.console())
	}
	return out
}

// says checks the output of a command line, whatever its exit status.
func (d *debian) says(line, want string) {
	d.Helper()
	if out, _ := d.run("set +e\n" + line); strings.TrimSpace(out) != want {
		d.Errorf("%s: %q, want %q", line, strings.TrimSpace(out), want)
	}
}
