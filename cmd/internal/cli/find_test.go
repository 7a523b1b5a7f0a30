// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestFind checks that Find finds programs where they are installed, but no program that another user could have put there.
func TestFind(t *testing.T) {
	testutil.RequireRoot(t)
	before := Installed
	t.Cleanup(func() { Installed = before })
	dir := t.TempDir()
	Installed = []string{filepath.Join(dir, "nowhere"), dir}
	file := filepath.Join(dir, "floodwall-test")
	t.Setenv("PATH", dir)
	if _, err := Find("floodwall-test"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
	for _, tt := range []struct {
		what     string
		mode     fs.FileMode
		uid, gid int
		taken    bool
	}{
		{"root's", 0o755, 0, 0, true},
		{"root's, writable for its group", 0o775, 0, 0, true},
		{"another user's", 0o755, 1234, 0, false},
		{"writable for another group", 0o775, 0, 1234, false},
		{"writable for all", 0o757, 0, 0, false},
		{"no program", 0o644, 0, 0, false},
	} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chown(file, tt.uid, tt.gid), os.Chmod(file, tt.mode)); err != nil {
			t.Fatal(err)
		}
		found, err := Find("floodwall-test")
		if tt.taken && (err != nil || found != file) || !tt.taken && (err == nil || !strings.Contains(err.Error(), file+" is not run")) {
			t.Errorf("%s: found %q, %v", tt.what, found, err)
		}
	}
	if err := errors.Join(os.Remove(file), os.Symlink("/bin/true", file)); err != nil {
		t.Fatal(err)
	}
	if found, err := Find("floodwall-test"); err == nil {
		t.Errorf("a link to another program is taken: %s", found)
	}
}
