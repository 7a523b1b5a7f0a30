package compile

import (
	xdpgen "github.com/floodwall/floodwall/internal/codegen/xdp"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/plan"
)

// LimitNotes tells of limits that a target cannot keep as they are written: of XDP, where a flood of random sources could
// fill the table; of netfilter, where it counts in units of time that are coarse for the rate.
func LimitNotes(p *ir.Program, target plan.Target) []string {
	if target == plan.TargetXDP {
		return xdpgen.LimitNotes(p)
	}
	return plan.RateNotes(p, target)
}
