package protect

import (
	"testing"

	xdpgen "github.com/floodwall/floodwall/internal/codegen/xdp"
	"github.com/floodwall/floodwall/internal/ir"
)

// TestFlowRoom has services remember a million connections, and as many as they can, on a host with 8 GB.
func TestFlowRoom(t *testing.T) {
	for flows, noted := range map[int]bool{1_000_000: false, 128_000_000: true} {
		octets, err := xdpgen.FlowMemory(&ir.Program{Protections: []ir.Protection{{Flows: flows}}})
		if err != nil {
			t.Fatal(err)
		}
		if octets < 16*flows || octets > 32*flows || (flowRoomNote(uint64(octets), 8<<30) != "") != noted {
			t.Errorf("%d connections: %d octets, noted %t", flows, octets, !noted)
		}
	}
}
