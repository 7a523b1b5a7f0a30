// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/test/testutil"
)

// kernelOnly are targets that OSS-Fuzz cannot run.
var kernelOnly = map[string]bool{"internal/compile/xdp:FuzzConditions": true}

// TestFuzzTargets checks that scripts/fuzz runs all fuzz targets of the tree, and that OSS-Fuzz runs all targets that need no kernel. OSS-Fuzz
// searches a directory for the name of a target, so no target's name may be a prefix of another target's name.
func TestFuzzTargets(t *testing.T) {
	top := testutil.Top(t)
	targets := grep(t, top)
	out, err := exec.Command(filepath.Join(top, "scripts/fuzz"), "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(targets, strings.Fields(string(out))); diff != "" {
		t.Errorf("scripts/fuzz list (-in the tree +listed):\n%s", diff)
	}
	text, err := os.ReadFile(filepath.Join(top, "packaging/oss-fuzz/build.sh"))
	if err != nil {
		t.Fatal(err)
	}
	built := strings.Fields(regexp.MustCompile(`(?s)targets=\((.*?)\)`).FindStringSubmatch(string(text))[1])
	var portable []string
	for _, target := range targets {
		if !kernelOnly[target] {
			portable = append(portable, target)
		}
		for _, other := range targets {
			if other != target && strings.HasPrefix(other, target) {
				t.Errorf("OSS-Fuzz takes %s for %s", other, target)
			}
		}
	}
	if diff := cmp.Diff(portable, built); diff != "" {
		t.Errorf("packaging/oss-fuzz/build.sh (-in the tree +listed):\n%s", diff)
	}
}

// grep lists the fuzz targets of the tree. It uses another method than scripts/fuzz.
func grep(t *testing.T, top string) (targets []string) {
	function := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)
	for _, wing := range []string{"cmd", "e2e", "internal", "policy", "test", "tools"} {
		err := filepath.WalkDir(filepath.Join(top, wing), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range function.FindAllSubmatch(text, -1) {
				dir, _ := filepath.Rel(top, filepath.Dir(path))
				targets = append(targets, dir+":"+string(m[1]))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return targets
}

// TestFuzzFails makes a module with a fuzz target that fails. scripts/fuzz must fail, save the input, and print the command that repeats the failure.
func TestFuzzFails(t *testing.T) {
	testutil.RequireRoot(t) // without root, scripts/fuzz uses sudo
	dir := t.TempDir()
	top := testutil.Top(t)
	script := `cd "$1"; mkdir -p scripts part; cp "$2"/scripts/{fuzz,go} scripts/
printf 'module example.org/m\n\ngo 1.26.0\n' >go.mod
printf 'package part\n\nimport "testing"\n\nfunc FuzzX(f *testing.F) {\n\tf.Add(7)\n\tf.Fuzz(func(t *testing.T, n int) {\n\t\tif n > 100 {\n\t\t\tt.Error("too large")\n\t\t}\n\t})\n}\n' >part/x_test.go
git init --quiet .
! scripts/fuzz 20s >out 2>&1 || { echo "it passes"; exit 1; }
command=$(sed -n 's/^repeat it with: //p' out)
[[ $command == *FuzzX$/* ]] || { cat out; exit 1; }
! eval "$command" >again 2>&1 && grep -q 'too large' again`
	if out, err := exec.Command("bash", "-euo", "pipefail", "-c", script, "-", dir, top).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for arg, want := range map[string]string{"": "usage:", "1x": "usage:", "h": "usage:", "1h30m": "usage:"} {
		if out, err := exec.Command(filepath.Join(top, "scripts/fuzz"), arg).CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v\n%s", arg, err, out)
		}
	}
}
