// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"testing"

	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// TestFlowMemory tests the note on memory for a million connections, and for the largest possible number, on a host with 8 GB.
func TestFlowMemory(t *testing.T) {
	for flows, noted := range map[int]bool{1_000_000: false, 128_000_000: true} {
		bytes, err := xdpgen.FlowMemory(&ir.Program{Protections: []ir.Protection{{Flows: flows}}})
		if err != nil {
			t.Fatal(err)
		}
		if bytes < 16*flows || bytes > 32*flows || (flowMemoryNote(uint64(bytes), 8<<30) != "") != noted {
			t.Errorf("%d connections: %d bytes, noted %t", flows, bytes, !noted)
		}
	}
}
