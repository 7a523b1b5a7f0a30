// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"os"
	"testing"

	"github.com/floodwall/floodwall/internal/lab"
)

func TestMain(m *testing.M) {
	lab.Roles(nil)
	os.Exit(m.Run())
}
