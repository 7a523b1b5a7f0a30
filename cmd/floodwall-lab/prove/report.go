// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/plan"
)

// Report is the result of a proof.
type Report struct {
	Policy   string        `json:"policy"`
	Target   string        `json:"target"`           // xdp or nftables
	Loaded   bool          `json:"loaded"`           // the code is read back from the kernel; false: it is the compiler's code
	Rules    int           `json:"rules"`            // number of rules of the program for XDP
	Parts    []Result      `json:"parts"`            // of the proof
	Time     time.Duration `json:"time"`             // duration of the whole proof
	CPU      time.Duration `json:"cpu"`              // CPU time of z3
	Classes  int           `json:"classes"`          // number of classes of addresses
	LookedUp int           `json:"looked-up"`        // number of addresses, one for each range between boundaries
	LeftOut  []string      `json:"left-out"`         // the parts that are not proved
	Shares   []Share       `json:"shares,omitempty"` // shares of counted frames
}

// Proved reports whether every part was proved.
func (r *Report) Proved() bool {
	return !slices.ContainsFunc(r.Parts, func(p Result) bool { return p.Answer != smt.Unsatisfiable })
}

// Count returns the number of parts with an answer.
func (r *Report) Count(answer smt.Answer) (n int) {
	for i := range r.Parts {
		if r.Parts[i].Answer == answer {
			n++
		}
	}
	return n
}

// add adds a part. It calls progress with the part if progress is not nil.
func (r *Report) add(part Result, progress func(Result)) {
	r.Parts = append(r.Parts, part)
	r.CPU += part.CPU
	if progress != nil {
		progress(part)
	}
}

// Prove proves all parts. It calls progress with each result.
func (s *Subject) Prove(ctx context.Context, l smt.Limits, progress func(Result)) (*Report, error) {
	if !smt.Available() {
		return nil, smt.ErrNoSolver
	}
	start := time.Now()
	r := &Report{
		Policy: s.Program.File, Target: string(plan.TargetXDP), Loaded: s.loaded, Rules: len(s.Program.Rules), Classes: len(s.world.classes.vector), LookedUp: s.world.classes.addresses,
		LeftOut: s.leftOut(),
	}
	for _, k := range kinds() {
		r.add(s.Kind(ctx, k, l), progress)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	r.add(s.Outside(ctx, l), progress)
	if r.ProvesRules() {
		for _, v6 := range []bool{false, true} {
			r.add(s.Rules(ctx, v6, l), progress)
		}
	}
	r.Time = time.Since(start)
	return r, ctx.Err()
}

// mostRules is the largest number of rules for which decide() is proved. The size of the formula for its tables grows with the square of that number:
// the formula takes seconds for 200 rules, and more than ten minutes for 1,000.
const mostRules = 250

// ProvesRules reports whether the proof has a part for decide().
func (r *Report) ProvesRules() bool { return r.Rules <= mostRules }

// leftOut returns the parts of this program that are not proved.
func (s *Subject) leftOut() []string {
	list := []string{
		"general() and all other functions in C: where the entry asks them, equal arguments have equal answers",
		"limits, dynamic sets, flows, cookies and floods: what is asked of them is proved, not what they answer",
	}
	if len(s.Program.Rules) > mostRules {
		list = append(list, fmt.Sprintf("the rules that general() asks: there are more than %d", mostRules))
	}
	if len(s.Program.Protections) > 0 {
		list = append(list, "what a protection does with a packet that its rule passes")
	}
	return list
}
