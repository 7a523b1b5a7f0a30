// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Roles()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "floodwall-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	buildDir = dir
	return m.Run()
}
