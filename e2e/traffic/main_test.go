// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"os"
	"testing"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

func TestMain(m *testing.M) {
	lab.Roles(nil)
	os.Exit(testutil.OwnMounts(m))
}
