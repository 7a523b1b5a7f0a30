// SPDX-License-Identifier: Apache-2.0

package statedir

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestHint runs the command in the hint. Paths must be quoted for a shell. An existing empty directory must be replaced. If the directory has files
// in it, the command must change nothing.
func TestHint(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plain", "two words", "it's", "-dash"} {
		uses, given := filepath.Join(dir, name), filepath.Join(dir, "to "+name)
		full := name == "plain"
		if err := errors.Join(os.Mkdir(uses, 0o755), os.WriteFile(uses+"/bans", nil, 0o600), os.Mkdir(given, 0o755)); err != nil {
			t.Fatal(err)
		}
		if full {
			if err := os.WriteFile(given+"/model", nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		hint := (&Error{given, uses, "this instance"}).Hint()
		command := regexp.MustCompile("`(.*)`").FindStringSubmatch(hint)
		if command == nil {
			t.Fatalf("no command in %q", hint)
		}
		at := given
		out, err := exec.Command("sh", "-c", command[1]).CombinedOutput()
		if full {
			at = uses
		}
		if _, missing := os.Stat(at + "/bans"); missing != nil || (err != nil) != full {
			t.Errorf("%s: %v, %v\n%s", command[1], err, missing, out)
		}
	}
}

// TestExists tests a directory, and paths that are not directories.
func TestExists(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{dir: true, file: false, file + "/below": false, dir + "/absent": false, "": false} {
		if got := exists(path); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}
