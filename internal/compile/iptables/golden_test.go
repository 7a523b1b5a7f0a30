// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"testing"

	"github.com/floodwall/floodwall/test/subject"
)

// TestGolden compares the output of the compiler for this target with archives. The archives for several targets are in internal/compile.
func TestGolden(t *testing.T) { subject.Goldens(t) }
