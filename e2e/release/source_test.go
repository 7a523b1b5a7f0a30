// SPDX-License-Identifier: Apache-2.0

//go:build release

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// isolated is a script that runs commands as root on a Debian system without a network. /here in it is a directory of this machine, and its other changed
// files are in memory.
const isolated = `
here=$1 lower=$2 shared=$3
mount -t tmpfs host "$here"
mkdir "$here"/{upper,work,root}
mount -t overlay host -o "lowerdir=$lower,upperdir=$here/upper,workdir=$here/work" "$here/root"
cd "$here/root"
mkdir here
mount --bind "$shared" here
mount -t proc proc proc
mount -t tmpfs run run
exec chroot . /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 sh -euc "cd /here; $4" 2>&1`

// buildSource builds the packages as a user without rights, and checks them with lintian.
const buildSource = `
useradd --create-home builder
chown --recursive builder: .
exec setpriv --reuid=builder --regid=builder --init-groups env HOME=/home/builder sh -euc '
	dpkg-source --extract floodwall_*.dsc tree
	(cd tree && dpkg-buildpackage --unsigned-source --unsigned-changes --build=binary)
	rm -r tree
	lintian --fail-on error,warning *.dsc *.changes >lintian.log 2>&1 || { echo "lintian fails:"; cat lintian.log; exit 1; }'`

// same fails unless the package NAME in the directory $1 has the files and the scripts of the one in $2, which nfpm made for Debian 12.
const same = `
for name in floodwall floodwall-hub floodwall-bgp; do
	for dir; do
		deb=$(echo "$dir/${name}"_*.deb)
		dpkg-deb --fsys-tarfile "$deb" | tar -t | grep -v '/$' | sed 's#^\./lib/#./usr/lib/#' | sort >"$dir/files"
		rm -rf "$dir/control"
		dpkg-deb --control "$deb" "$dir/control"
		rm -f "$dir"/control/{control,md5sums}
	done
	diff "$1/files" "$2/files"
	diff -r "$1/control" "$2/control"
done`

// TestReleaseSource makes the source package twice, builds it on Debian 13 without a network, and installs the packages there.
func TestReleaseSource(t *testing.T) {
	testutil.RequireRoot(t)
	builder, host := testutil.Debian(t, "builder", "trixie"), testutil.Debian(t, "host", "trixie")
	made, packed := t.TempDir(), t.TempDir()
	s := &shop{t: t, dir: made, tree: testutil.Top(t), env: os.Environ()}
	on := func(system, commands string) string {
		t.Helper()
		cmd := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "bash", "-euo", "pipefail", "-c", isolated, "-",
			t.TempDir(), system, made, commands)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", commands, err, out)
		}
		return string(out)
	}

	sums := s.must(s.tree, `scripts/source "$1" "$2" 2>/dev/null`, version, made)
	again := s.with(t, "TZ=Asia/Tokyo", "HOME="+t.TempDir(), "GOMODCACHE="+strings.TrimSpace(s.must(s.tree, "scripts/go env GOMODCACHE")))
	if other := again.must(s.tree, `umask 077; scripts/source "$1" "$2" 2>/dev/null`, version, packed); other != sums {
		t.Errorf("the source package has other bytes when it is made again:\n%s\n%s", sums, other)
	}

	on(builder, buildSource)
	s.must(s.tree, `KINDS=deb COMPRESSION=none scripts/packages "$1" "$2" "$(dpkg --print-architecture)"`, version, packed)
	s.must(made, same, made, packed)
	out := on(host, "dpkg --install floodwall*.deb; floodwall version; floodwall-hub version; floodwall-bgp version")
	for _, name := range []string{"floodwall", "floodwall-hub", "floodwall-bgp"} {
		if !strings.Contains(out, "\n"+name+" "+version+" (") {
			t.Errorf("no version of %s in\n%s", name, out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(made, "floodwall*-dbgsym_*")); len(left) > 0 {
		t.Errorf("packages without content: %s", left)
	}
}
