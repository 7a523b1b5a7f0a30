// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// loud are scripts in place of programs that download and install. They print to standard output, as some versions of the real programs do.
var loud = map[string]string{
	"debootstrap": `mkdir -p "${@: -2:1}"/{usr/sbin,proc,lib/modules} && echo "I: Base system installed"`,
	"chroot":      `echo "Setting up $2"`,
	"apt-cache":   `for name in linux-image-6.1.0-1-amd64 linux-image-6.1.0-2-amd64; do echo $name; done`,
	"apt-get": `echo "Hit: $*"
		[[ " $* " == *" download "* ]] || exit 0
		for name; do true; done
		mkdir -p deb/DEBIAN deb/usr/bin deb/boot deb/lib/modules/6.1.0-2-amd64/kernel
		printf 'Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: none <none@localhost>\nDescription: none\n' "${name%/*}" >deb/DEBIAN/control
		touch deb/boot/vmlinuz-6.1.0-2-amd64 deb/lib/modules/6.1.0-2-amd64/modules.{order,builtin,builtin.modinfo}
		printf '#!/bin/sh\necho version\n' | tee deb/usr/bin/{crowdsec,qemu-system-x86_64} >/dev/null
		chmod +x deb/usr/bin/*
		dpkg-deb -b deb one.deb
		rm -rf deb`,
}

// TestDebianPrintsOnlyAPath runs each sub-command of scripts/debian with an empty cache, and with programs that print text. The standard output of
// scripts/debian must still be one line: the path of an existing file.
func TestDebianPrintsOnlyAPath(t *testing.T) {
	RequireRoot(t)
	tools := t.TempDir()
	for name, script := range loud {
		if err := os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/bash\nset -euo pipefail\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, words := range []string{"kernel 6.1 amd64", "root 6.1 amd64", "managers", "crowdsec", "qemu"} {
		t.Run(words, func(t *testing.T) {
			cache := t.TempDir()
			cmd := exec.Command(filepath.Join(Top(t), "scripts/debian"), strings.Fields(words)...)
			cmd.Env = append(os.Environ(), "FLOODWALL_CACHE="+cache, "PATH="+tools+":"+os.Getenv("PATH"))
			var said strings.Builder
			cmd.Stderr = &said
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, &said)
			}
			path, only := strings.CutSuffix(string(out), "\n")
			if _, err := os.Stat(path); err != nil || !only || !strings.HasPrefix(path, cache+"/") {
				t.Errorf("standard output is not the path of what is kept in %s: %q (%v)", cache, out, err)
			}
		})
	}
}

// TestCacheIsAbsolute runs scripts/debian with a relative directory in FLOODWALL_CACHE, which must be an error.
func TestCacheIsAbsolute(t *testing.T) {
	cmd := exec.Command(filepath.Join(Top(t), "scripts/debian"), "qemu")
	cmd.Env = append(os.Environ(), "FLOODWALL_CACHE=some/cache")
	const want = "floodwall: error: FLOODWALL_CACHE is some/cache: it has to be an absolute path\n"
	if out, err := cmd.CombinedOutput(); err == nil || string(out) != want {
		t.Errorf("it says %q (%v), want %q", out, err, want)
	}
}
