// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// flavour is the flavour of Debian's kernels that contains the drivers of network cards.
const flavour = "amd64"

// parts are the files from which a machine is made.
type parts struct {
	qemu   string
	kernel string // image
	small  string // cpio archive: the initramfs, without Spec.Files
	whole  string // cpio archive: the initramfs with Spec.Files
	root   string // image of the disk, "" for none
}

// fetch downloads the missing parts with scripts/debian, and makes the initramfs.
func fetch(t testing.TB, spec Spec) (p parts) {
	t.Helper()
	p.qemu = testutil.Debian(t, "qemu")
	kernel := testutil.Debian(t, "kernel", spec.Kernel, flavour)
	p.kernel = filepath.Join(kernel, "vmlinuz")
	if spec.Disk {
		p.root = testutil.Debian(t, "root", spec.Kernel, flavour)
	}
	dir := t.TempDir()
	p.small, p.whole = filepath.Join(dir, "small"), filepath.Join(dir, "whole")
	tree := filepath.Join(dir, "tree")
	fill(t, tree)
	modules := filepath.Join(dir, "modules")
	shell(t, `mkdir "$1" && cd "$1" && zcat "$2" | cpio -i --quiet -d --no-absolute-filenames`, modules, filepath.Join(kernel, "modules"))
	if spec.Disk {
		shell(t, `cd "$1" && for module in virtio_blk crc32c_generic ext4; do
				release=$(ls lib/modules)
				grep "/$module\.ko:" lib/modules/$release/modules.dep | tr -d : | tr ' ' '\n' | sed "s|^|lib/modules/$release/|"
				echo lib/modules/$release/modules.dep
			done | sort -u | cpio -p -d --quiet "$2"`, modules, tree)
	} else {
		shell(t, `cp -r "$1/lib" "$2/"`, modules, tree)
		shell(t, copyTools, append([]string{tree}, spec.Tools...)...)
	}
	pack(t, tree, p.small)
	p.whole = p.small
	if spec.Files != "" {
		shell(t, `mkdir "$2/files" && cp -a "$1/." "$2/files/"`, spec.Files, tree)
		p.whole = filepath.Join(dir, "whole")
		pack(t, tree, p.whole)
	}
	os.RemoveAll(tree)
	os.RemoveAll(modules)
	return p
}

// Build builds a command of this project, for use in a machine.
func Build(t testing.TB, pkg, to string) {
	t.Helper()
	cmd := exec.Command("scripts/go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", to, pkg)
	cmd.Dir = testutil.Top(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s", pkg, err, out)
	}
}

// shell runs a bash script on this host.
func shell(t testing.TB, script string, args ...string) {
	t.Helper()
	cmd := exec.Command("bash", append([]string{"-euo", "pipefail", "-c", script, "-"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// fill makes the directory tree of the initramfs. It contains busybox, the agent, and the script first as /init.
func fill(t testing.TB, tree string) {
	t.Helper()
	for _, dir := range []string{"bin", "etc", "proc", "sys", "dev", "run", "tmp", "root"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	shell(t, `cp "$(type -p busybox)" "$1/bin/busybox" && ln -s bin "$1/sbin" && echo root:x:0:0::/tmp:/bin/sh >"$1/etc/passwd"`, tree)
	if err := os.WriteFile(filepath.Join(tree, "init"), []byte(first), 0o755); err != nil {
		t.Fatal(err)
	}
	Build(t, "./e2e/guest/agent", filepath.Join(tree, "bin/agent"))
}

// copyTools is a script that copies programs and their libraries to a root directory.
const copyTools = `
root=$1 PATH=$PATH:/usr/sbin:/sbin
shift
for tool; do
	rm -f "$root/bin/$tool" # of busybox
	cp -L "$(type -p "$tool")" "$root/bin/$tool"
	ldd "$root/bin/$tool"
done | { grep -o '/[^ ]*' || true; } | sort -u | while read -r library; do
	cp -L --parents "$library" "$root"
done`

// pack makes a cpio archive for the kernel. The archive is not compressed, because decompression on the emulated processor would take longer.
func pack(t testing.TB, tree, archive string) {
	t.Helper()
	shell(t, `cd "$1" && find . | cpio -o -H newc --quiet >"$2"`, tree, archive)
}

// initrd returns the path of the initramfs for the next boot.
func (m *Machine) initrd() string {
	if m.spec.Disk && m.asked {
		return m.parts.small
	}
	return m.parts.whole
}

// first is the script that a machine runs as its first process.
const first = `#!/bin/busybox sh
for tool in $(busybox --list); do [ -e /bin/$tool ] || ln -s busybox /bin/$tool; done
export PATH=/bin:/usr/sbin:/usr/bin:/usr/local/bin HOME=/tmp
export GODEBUG=asyncpreemptoff=1 # no signals, which emulation makes dear
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for word in $(cat /proc/cmdline); do
	case $word in
	floodwall.disk) disk=yes ;;
	floodwall.plain) plain=yes ;;
	floodwall.modules=*) modules=${word#*=} ;;
	floodwall.listen=*) listen=${word#*=} ;;
	esac
done
IFS=,
if [ "$disk" ]; then
	modprobe virtio_blk; modprobe crc32c_generic; modprobe ext4
	mkdir /disk
	mount -t ext4 /dev/vda /disk || { lsmod; ls /dev/vd*; find /lib/modules; dmesg | tail -20; echo 'floodwall: no root file system'; poweroff -f; }
	mkdir -p /disk/usr/local/lib/floodwall-test /disk/etc/systemd/system/sysinit.target.wants
	cp /bin/agent /disk/usr/local/lib/floodwall-test/agent
	cat >/disk/etc/systemd/system/agent.service <<END
[Unit]
DefaultDependencies=no
After=local-fs.target
[Service]
ExecStart=/usr/local/lib/floodwall-test/agent $(echo $listen)
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root GODEBUG=asyncpreemptoff=1
END
	ln -sf ../agent.service /disk/etc/systemd/system/sysinit.target.wants/
	filled=/disk/usr/local/lib/floodwall-test/filled # what was done to the files since stays, also when the machine boots by itself again
	[ ! -d /files ] || [ -e $filled ] || { cp -a /files/. /disk/ && touch $filled; }
	mount --move /dev /disk/dev
	if [ "$plain" ]; then
		mount --move /proc /disk/proc; mount --move /sys /disk/sys
		mount -t bpf bpf /disk/sys/fs/bpf; mount -t tmpfs run /disk/run; ip link set lo up
		exec switch_root /disk /usr/local/lib/floodwall-test/agent $listen
	fi
	umount /sys /proc
	exec switch_root /disk /lib/systemd/systemd
fi
[ ! -d /files ] || cp -a /files/. /
mount -t bpf bpf /sys/fs/bpf; mount -t tmpfs -o mode=1777 tmp /tmp; mount -t tmpfs run /run; ip link set lo up
for module in $modules; do modprobe $module; done
echo starting the agent
/bin/agent $listen
poweroff -f
`
