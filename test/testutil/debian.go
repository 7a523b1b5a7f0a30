// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Top returns the top directory of this project.
func Top(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatalf("no go.work above the working directory: %v", err)
	return ""
}

// Cache returns the directory for files that tests download or build once on each machine. It is FLOODWALL_CACHE, as in scripts/debian, or else the
// user's cache. Call it outside of Inside, so that the files belong to the user.
func Cache(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("FLOODWALL_CACHE"); dir != "" {
		if !filepath.IsAbs(dir) {
			t.Fatalf("FLOODWALL_CACHE is %s: it has to be an absolute path", dir)
		}
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "floodwall")
}

// Debian runs scripts/debian, and returns the path that it prints. It needs root, as debootstrap does.
func Debian(t testing.TB, words ...string) string {
	t.Helper()
	if os.Getenv(insideVar) == "" { // inside, the test has the rights of root under another user ID
		RequireRoot(t)
	}
	cmd := exec.Command(filepath.Join(Top(t), "scripts/debian"), words...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("scripts/debian %s: %v\n%s", words, err, &said)
	}
	path := string(bytes.TrimSpace(out))
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("scripts/debian %s prints something else than one path: %v", words, err)
	}
	return path
}
