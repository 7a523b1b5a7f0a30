// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestCreate opens existing and new files. It checks the file's mode and content afterwards.
func TestCreate(t *testing.T) {
	testutil.RequireRoot(t)
	own, sticky := t.TempDir(), t.TempDir()
	check(t, os.Chmod(sticky, 0o1777))
	secret := filepath.Join(own, "secret")
	for _, row := range []struct {
		name    string
		dir     string
		prepare func(path string) error
		refused bool
	}{
		{"new", own, func(string) error { return nil }, false},
		{"wide", own, func(p string) error { return errors.Join(os.WriteFile(p, []byte("old"), 0o644), os.Chmod(p, 0o666)) }, false},
		{"nobody's", sticky, func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Chown(p, 65534, 65534)) }, true},
		{"link", sticky, func(p string) error { return os.Symlink(secret, p) }, true},
		{"nobody's link", sticky, func(p string) error { return errors.Join(os.Symlink(secret, p), os.Lchown(p, 65534, 65534)) }, true},
		{"second name", sticky, func(p string) error { return os.Link(secret, p) }, true},
		{"own link", own, func(p string) error { return os.Symlink(filepath.Join(own, "new"), p) }, false},
	} {
		check(t, os.WriteFile(secret, []byte("secret"), 0o600))
		path := filepath.Join(row.dir, row.name)
		check(t, row.prepare(path))
		f, err := sample.CreateFile(path)
		var why *sample.FileError
		if errors.As(err, &why) != row.refused || err == nil == row.refused {
			t.Errorf("%s: %v, want it refused: %v", row.name, err, row.refused)
		}
		if err == nil {
			f.Close()
			info, err := os.Stat(path)
			check(t, err)
			if info.Mode().Perm() != 0o600 || info.Size() != 0 {
				t.Errorf("%s: mode %v and %d bytes, want 0600 and none", row.name, info.Mode(), info.Size())
			}
		}
		if text, _ := os.ReadFile(secret); string(text) != "secret" {
			t.Errorf("%s: a file beside it was emptied", row.name)
		}
	}
}
