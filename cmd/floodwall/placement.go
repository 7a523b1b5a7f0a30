// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// printPlacement prints a summary of the placement of rules. It prints nothing if there is no cost model and no rule was moved earlier.
func (e *env) printPlacement(p *control.PlacementStatus) {
	if p.Model == nil && len(p.Last) == 0 {
		return
	}
	e.Println("")
	e.Println("placement %s: %s", p.Mode, movesText(p))
	if p.Model != nil {
		e.Println("  costs of this host were measured %s ago", wording.Span(time.Since(*p.Model)))
	}
	if p.Mix != nil {
		e.Println("  %s", mixText(p.Mix, p.Since))
	}
	if p.Predicted != nil {
		e.Println("  filtering is predicted to cost %s", predictionText(*p.Predicted))
	}
	for _, o := range p.Others {
		e.Println("  with %s: %s", o.What, predictionText(o.Predicted))
	}
	if p.Measured > 0 {
		e.Println("  all that the kernel does in softirqs took %s ns a packet", wording.Count(int(p.Measured+0.5)))
	}
	for _, m := range p.Last {
		e.Println("  %s ago: %s", wording.Span(time.Since(m.Time)), m.String())
	}
}

// movesText says whether rules move between stages.
func movesText(p *control.PlacementStatus) string {
	switch {
	case p.Fixed != "":
		return "rules stay where they are: " + p.Fixed
	case p.Model == nil:
		return "rules stay where they are: this host's costs are not known any more; run `floodwall-lab bench --calibrate`"
	case !p.Moves:
		return "rules stay where they are while no `floodwall daemon` runs"
	}
	return "rules move to where they cost least"
}

// mixText describes the traffic since the last placement: the rates at which packets arrived, were decided, delivered and forwarded.
func mixText(m *cost.Mix, since time.Time) string {
	rate := func(n uint64) string { return wording.Count(int(float64(n)/max(m.Seconds, 0.001) + 0.5)) }
	var decided uint64
	for _, n := range m.Rules {
		decided += n
	}
	return fmt.Sprintf("packets a second since %s ago: %s arrived, rules decided %s, %s were delivered here, %s forwarded",
		wording.Span(time.Since(since)), rate(m.Arrived), rate(decided), rate(m.Local), rate(m.Forwarded))
}

func predictionText(p cost.Prediction) string {
	return fmt.Sprintf("%.1f ns a packet, %.1f%% of a CPU", p.PerPacket, 100*p.CPU)
}
