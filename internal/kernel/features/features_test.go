// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestFeatures tests the kernel on which the tests run, which must have all features. A container may lack access to conntrack.
func TestFeatures(t *testing.T) {
	testutil.RequireRoot(t)
	for name, err := range map[string]error{
		"tcx": features.Egress(), "reqsk": features.Reqsk(), "cookies": features.RawCookies(), "conntrack": features.ConntrackLookup(),
	} {
		if err != nil && !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !features.ReadsKernel() {
		t.Error("programs may not read the kernel's memory")
	}
}
