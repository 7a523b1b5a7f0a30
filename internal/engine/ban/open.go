// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// Maps are the names of the BPF maps of dynamic sets.
var Maps = []string{image.DynamicInfo, image.Dynamic, image.DynamicTexts, image.DynamicWhy, image.DynamicLengths}

// Now returns the present time in seconds of CLOCK_MONOTONIC. Expiries are stored in this unit, and the datapath reads the same clock.
func Now() uint32 { return uint32(image.Monotonic() / time.Second) }

// Open opens the dynamic sets of a generation, nil when it has none. They are valid until the generation is
// closed.
func Open(g *datapath.Generation) (*addrs.Dynamic, error) {
	memory, err := g.Memory(Maps...)
	if err != nil {
		return nil, err
	}
	if memory[image.Dynamic] == nil || memory[image.DynamicTexts] == nil {
		return nil, nil
	}
	return addrs.OpenDynamic(xdpgen.DynamicMemory(memory))
}
