// SPDX-License-Identifier: Apache-2.0

package testutil_test

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// TestRunDirStays removes the machine's /run/floodwall from outside of the test's namespaces, as a daemon does that ends there. The files of the test
// must stay.
func TestRunDirStays(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	const mine = "/run/floodwall/mine"
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nsenter", "-t", strconv.Itoa(os.Getppid()), "-m", "rmdir", "/run/floodwall").CombinedOutput()
	if err == nil {
		t.Error("rmdir from outside removed the directory that the test has covered")
	} else {
		t.Logf("rmdir: %s", out)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}
