package dynamicset

import (
	"time"

	xdpgen "github.com/floodwall/floodwall/internal/codegen/xdp"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/xdp"
)

// Maps are the maps of dynamic sets.
var Maps = []string{xdp.DynamicInfo, xdp.Dynamic, xdp.DynamicTexts, xdp.DynamicWhy}

// Now is the clock of expiries: seconds of CLOCK_MONOTONIC, as the datapath reads it.
func Now() uint32 { return uint32(xdp.Monotonic() / time.Second) }

// Open opens the dynamic sets of a generation, nil when it has none. They are valid until the generation is
// closed.
func Open(g *datapath.Generation) (*addrs.Dynamic, error) {
	memory, err := g.Memory(Maps...)
	if err != nil {
		return nil, err
	}
	if memory[xdp.Dynamic] == nil || memory[xdp.DynamicTexts] == nil {
		return nil, nil
	}
	return addrs.OpenDynamic(xdpgen.DynamicMemory(memory))
}
