// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// previousRelease is the commit from which upgrades start. It is the last commit whose state has no format.
const previousRelease = "a095041"

// Previous builds the previous release from the repository's history, once on each machine. It returns the path of the binary. The test fails if the
// history lacks the commit. Call it outside of Inside, because it stores the binary in the user's cache.
func Previous(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(Cache(t), "previous-"+previousRelease)
	binary := filepath.Join(dir, "floodwall")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	source, err := os.MkdirTemp(dir, "source-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(source)
	top := Top(t)
	output(t, top, "sh", "-c", fmt.Sprintf("git archive %s | tar -x -C '%s'", previousRelease, source))
	built := filepath.Join(source, "floodwall-built")
	output(t, source, filepath.Join(top, "scripts/go"), "build", "-buildvcs=false", "-o", built, "./cmd/floodwall")
	if err := os.Rename(built, binary); err != nil {
		t.Fatal(err)
	}
	return binary
}

// output runs a command in a directory, and returns its output.
func output(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off") // a release may be older than go.work, which the go command would find above dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("building the previous release %s: %s %s: %v\n%s", previousRelease, name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
