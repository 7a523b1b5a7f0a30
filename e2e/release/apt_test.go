// SPDX-License-Identifier: Apache-2.0

//go:build release

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// host is a script that runs commands on a Debian host with the repository's public key and the .sources file. The host has no other apt source, and its
// network reaches only a web server with the repository. Its changed files are in memory, and its namespaces end with the script.
const host = `
here=$1 lower=$2 served=$3
mount -t tmpfs host "$here"
mkdir "$here"/{upper,work,root}
mount -t overlay host -o "lowerdir=$lower,upperdir=$here/upper,workdir=$here/work" "$here/root"
ip link set lo up
busybox httpd -p 127.0.0.1:80 -h "$served"
cd "$here/root"
mount -t proc proc proc
mount -t tmpfs run run
rm -rf etc/apt/sources.list etc/apt/sources.list.d/*
mkdir -p etc/apt/keyrings
cp "$KEY" etc/apt/keyrings/floodwall-archive-keyring.asc
printf %s "$SOURCES" >etc/apt/sources.list.d/floodwall.sources
exec chroot . /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 sh -euc "$4" 2>&1`

// aptHost makes hosts from a directory with Debian's files.
type aptHost struct {
	*shop
	lower string
}

// run runs commands on a new host. The directory served is its apt repository.
func (h *aptHost) run(served, commands string) (string, error) {
	sources := strings.ReplaceAll(h.block("floodwall.sources"), "ADDRESS", "http://127.0.0.1/")
	cmd := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc",
		"bash", "-euo", "pipefail", "-c", host, "-", h.t.TempDir(), h.lower, served, commands)
	cmd.Env = append(os.Environ(), "SOURCES="+sources, "KEY="+filepath.Join(h.tree, "packaging/keys/floodwall-archive-keyring.asc"))
	out, err := cmd.Output()
	return string(out), err
}

// copied copies the repository, runs a script in the copy, and returns the path of the copy.
func (s *shop) copied(script string) string {
	s.t.Helper()
	dir := filepath.Join(s.t.TempDir(), "apt")
	os.Chmod(filepath.Dir(dir), 0o755)
	os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755)
	s.must(s.apt, `cp -r . "$1"`, dir)
	s.must(dir, script)
	return dir
}

// sign is a script that signs the Release file of a repository again, with $FLOODWALL_REPOSITORY_KEY.
const sign = `
release=dists/stable/Release
gpg --batch --yes --local-user "$FLOODWALL_REPOSITORY_KEY" --clearsign --output dists/stable/InRelease "$release"
gpg --batch --yes --local-user "$FLOODWALL_REPOSITORY_KEY" --armor --detach-sign --output "$release.gpg" "$release"`

// install returns the commands of docs/verify.md that install the package.
func (s *shop) install() string {
	return strings.ReplaceAll(s.block("apt"), "apt-get install ", "apt-get install --yes ")
}

// hosts installs from the repository on Debian hosts. It also checks that apt refuses repositories that differ from what the maintainers signed.
func hosts(s *shop, lower string) {
	s.t.Run("installs", func(t *testing.T) {
		h := aptHost{s.with(t), lower}
		out, err := h.run(h.apt, h.install())
		if err != nil || !strings.Contains(out, "\nfloodwall "+version+" (") || strings.Contains(out, "\nW:") {
			t.Errorf("apt: %v\n%s", err, out)
		}
	})
	s.t.Run("upgrades", func(t *testing.T) {
		h := aptHost{s.with(t), lower}
		next := h.copied(nextVersion + h.tree + `/scripts/repository "$PWD" "$PWD.debs"/*.deb`)
		out, err := h.run(next, "apt-get update; apt-get install --yes floodwall=99.0.0-1; apt-get upgrade --yes; dpkg-query --show floodwall")
		if err != nil || !strings.Contains(out, "floodwall\t99.0.1-1") {
			t.Errorf("apt: %v\n%s", err, out)
		}
	})
	for name, test := range map[string]struct{ spoil, says string }{
		"a changed package": {`f=$(echo pool/main/f/floodwall/floodwall_*_"$(dpkg --print-architecture)".deb)
			printf x | dd of="$f" bs=1 seek=100000 conv=notrunc status=none`, "Hash Sum mismatch"},
		"a changed list": {`for f in dists/stable/main/binary-*/{Packages,Packages.xz,by-hash/SHA256/*}; do
			printf x | dd of="$f" bs=1 seek=200 conv=notrunc status=none; done`, "Hash Sum mismatch"},
		"a foreign key": {"export GNUPGHOME=" + filepath.Join(s.dir, "foreign") + " FLOODWALL_REPOSITORY_KEY=" + s.fingerprint("foreign") + sign,
			"is not signed"},
		"no signature":      {"rm dists/stable/InRelease dists/stable/Release.gpg", "is not signed"},
		"a changed Release": {"sed -i s/Floodwall/Fl00dwall/ dists/stable/InRelease dists/stable/Release", "is not signed"},
		"an expired Release": {"sed -i -e \"s/^Date: .*/Date: $(date -Ru -d -91days)/\" -e \"s/^Valid-Until: .*/Valid-Until: $(date -Ru -d -1day)/\"" +
			" dists/stable/Release" + sign, "is expired"},
	} {
		s.t.Run(name, func(t *testing.T) {
			h := aptHost{s.with(t), lower}
			out, err := h.run(h.copied(test.spoil), h.install())
			if err == nil || !strings.Contains(out, test.says) || strings.Contains(out, "\nfloodwall v") {
				t.Errorf("apt: %v, want %q in\n%s", err, test.says, out)
			}
		})
	}
}

// nextVersion is a script that makes packages of the next version from the packages of a repository.
const nextVersion = `
mkdir "$PWD.debs"
for f in pool/main/f/floodwall/floodwall_*.deb; do
	dpkg-deb -R "$f" "$PWD.tree"
	sed -i 's/^Version: .*/Version: 99.0.1-1/' "$PWD.tree/DEBIAN/control"
	arch=${f##*_}
	dpkg-deb --root-owner-group -Znone -b "$PWD.tree" "$PWD.debs/floodwall_99.0.1-1_$arch" >/dev/null
	rm -r "$PWD.tree"
done
`

// repository adds packages to the repository. Old versions must stay in it. A package of the same name with other bytes must be refused. If the addition
// is interrupted, the repository must be complete: either the old one or the new one.
func repository(s *shop) {
	dir := s.copied(nextVersion)
	add := filepath.Join(s.tree, "scripts/repository") + " " + dir + " " + dir + ".debs/*.deb"
	const whole = `cd dists/stable && gpgv --quiet --keyring "$1" InRelease && sed -n '/^SHA256:/,$p' Release | grep '^ ' | while read -r sum _ name; do
		echo "$sum  $name"; echo "$sum  ${name%/*}/by-hash/SHA256/$sum"; done | sha256sum --check --quiet`
	keyring := filepath.Join(s.t.TempDir(), "keyring")
	s.must(s.dir, `gpg --export >"$1"`, keyring)
	for wait := 100 * time.Millisecond; wait < 3*time.Second; wait += 400 * time.Millisecond {
		cmd := s.bash(s.tree, "exec "+add)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(wait)
		syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		cmd.Wait()
		s.must(dir, whole, keyring)
		if left, _ := filepath.Glob(dir + ".[^d]*"); len(left) > 0 {
			s.t.Errorf("interrupted after %s, left %s", wait, left)
		}
	}
	before := strings.Fields(s.must(dir, "sha256sum <dists/stable/main/binary-amd64/Packages"))[0]
	s.must(s.tree, add)
	s.must(dir, whole+"; test -f main/binary-amd64/by-hash/SHA256/"+before, keyring)
	for _, want := range []string{"99.0.0-1", "99.0.1-1"} {
		s.must(dir, `grep -qx "Version: $1" dists/stable/main/binary-amd64/Packages && grep -qx "Version: $1" dists/stable/main/binary-arm64/Packages`, want)
	}
	s.refuses(dir, "for f in $PWD.debs/*; do echo >>$f; done; "+add, "the repository has another package of this name")
	foreign := s.with(s.t, "GNUPGHOME="+filepath.Join(s.dir, "foreign"), "FLOODWALL_REPOSITORY_KEY="+s.fingerprint("foreign"))
	foreign.refuses(s.tree, filepath.Join(s.tree, "scripts/repository")+" "+dir, "is not in")
	s.must(dir, whole, keyring)
}
