package compile

import (
	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// LimitNotes warns of limits that a target cannot keep as written: in XDP if a flood of random sources could fill the table, in netfilter
// if its units of time are coarse for the rate.
func LimitNotes(p *ir.Program, target plan.Target) []string {
	if target == plan.TargetXDP {
		return xdpgen.LimitNotes(p)
	}
	return plan.RateNotes(p, target)
}
