package compile

import "github.com/floodwall/floodwall/internal/ir"

// LimitNotes tells of limits that a target cannot keep as they are written: of XDP, where a flood of random sources could
// fill the table; of netfilter, where it counts in units of time that are coarse for the rate.
func LimitNotes(p *ir.Program, target Target) []string {
	if target == TargetXDP {
		return tableNotes(p)
	}
	return rateNotes(p, target)
}
