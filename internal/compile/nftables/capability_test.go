// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// TestChecksPlanned checks that the plan has the right list of the checks that nftables can make. This package writes lines for these checks, and
// leaves out all others.
func TestChecksPlanned(t *testing.T) {
	for c := range packet.NumChecks {
		if planned, made := plan.TargetNftables.Makes(c), checkTable[c].lines != nil; planned != made {
			t.Errorf("check %s: the plan says %v, the table has lines: %v", c, planned, made)
		}
		if checkTable[c].lines == nil && checkTable[c].left == "" {
			t.Errorf("check %s has no lines, and nothing says why", c)
		}
	}
}
