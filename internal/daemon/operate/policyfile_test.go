// SPDX-License-Identifier: Apache-2.0

package operate_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestPolicyFile replaces the text of a policy file through a symbolic link. The link, the mode and the owner must stay. A text that another program
// has written meanwhile must stay, too.
func TestPolicyFile(t *testing.T) {
	t.Parallel()
	testutil.RequireRoot(t)
	const first, second, third = "devices: [eth0]\n", "devices: [eth1]\n", "devices: [eth2]\n"
	dir := t.TempDir()
	file, link := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "link.yaml")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(file, []byte(first), 0o640))
	must(os.Chmod(file, 0o640))
	must(os.Chown(file, 1234, 4321))
	must(os.Symlink("policy.yaml", link))
	f, err := operate.OpenPolicyFile(t.Context(), link)
	must(err)
	must(f.Write(f.Text, []byte(second)))
	info, err := os.Lstat(file)
	must(err)
	owner := info.Sys().(*syscall.Stat_t)
	if got, err := os.ReadFile(link); err != nil || string(got) != second || info.Mode() != 0o640 || owner.Uid != 1234 || owner.Gid != 4321 {
		t.Errorf("the file has %q, mode %v, owner %d:%d; %v", got, info.Mode(), owner.Uid, owner.Gid, err)
	}
	must(os.WriteFile(file, []byte(third), 0o640))
	if err := f.Write([]byte(second), []byte(first)); err == nil || !strings.Contains(err.Error(), "another program has changed it") {
		t.Errorf("a text of another program is replaced: %v", err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != third {
		t.Errorf("the text of another program is now %q, %v", got, err)
	}
	waiting, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := operate.OpenPolicyFile(waiting, file); err == nil {
		t.Error("a second command opens the file during the first")
	}
	f.Close()
	again, err := operate.OpenPolicyFile(t.Context(), file)
	must(err)
	again.Close()
}

// TestPolicyFileIrregular opens a pipe and a device, whose text has no end.
func TestPolicyFileIrregular(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "policy.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{pipe, "/dev/null"} {
		if _, err := operate.OpenPolicyFile(t.Context(), file); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("%s: %v", file, err)
		}
	}
}
