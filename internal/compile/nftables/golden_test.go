package nftables_test

import (
	"testing"

	"github.com/floodwall/floodwall/test/subject"
)

// TestGolden compares what the compiler makes of policies for this target with archives. Those of several targets are in internal/compile.
func TestGolden(t *testing.T) { subject.Goldens(t) }
