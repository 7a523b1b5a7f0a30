package control

import (
	"github.com/floodwall/floodwall/internal/dynamicset"
	"github.com/floodwall/floodwall/internal/xdp"
)

// foreign returns a *datapath.FormatError when the maps of a generation's program are of another version, so that they cannot be
// read. It runs all the same, and an apply can take its place.
func (g *generation) foreign() error {
	if g == nil || g.program == nil {
		return nil
	}
	return g.program.Knows(append([]string{xdp.Counters, xdp.Limits, xdp.LimitInfos, xdp.ProtectionStates, xdp.Question}, dynamicset.Maps...)...)
}
