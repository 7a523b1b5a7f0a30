// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

func TestMain(m *testing.M) {
	lab.Roles(nil)
	os.Exit(testutil.OwnMounts(m))
}

// ownDir returns a directory for an instance whose state must be separate from the machine's own instance.
func ownDir(t *testing.T) string { return filepath.Join(testutil.MountBPF(t), "floodwall") }
