package prove

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/lab/prove/smt"
)

// Report is what a proof has found.
type Report struct {
	Policy   string        `json:"policy"`
	Target   string        `json:"target"`           // xdp or nftables
	Loaded   bool          `json:"loaded"`           // whether the code is what the kernel has, not what the compiler has made
	Rules    int           `json:"rules"`            // of the program for XDP
	Parts    []Result      `json:"parts"`            // of the proof
	Time     time.Duration `json:"time"`             // altogether
	CPU      time.Duration `json:"cpu"`              // of z3
	Classes  int           `json:"classes"`          // of addresses
	LookedUp int           `json:"looked-up"`        // addresses, one for each range between boundaries
	LeftOut  []string      `json:"left-out"`         // what is not proved
	Shares   []Share       `json:"shares,omitempty"` // of frames that were counted
}

// Proved reports whether every part was proved.
func (r *Report) Proved() bool {
	return !slices.ContainsFunc(r.Parts, func(p Result) bool { return p.Answer != smt.Unsatisfiable })
}

// Count is how many parts have an answer.
func (r *Report) Count(answer smt.Answer) (n int) {
	for i := range r.Parts {
		if r.Parts[i].Answer == answer {
			n++
		}
	}
	return n
}

// add adds a part, and tells progress of it, if there is one.
func (r *Report) add(part Result, progress func(Result)) {
	r.Parts = append(r.Parts, part)
	r.CPU += part.CPU
	if progress != nil {
		progress(part)
	}
}

// Prove proves all parts. progress is told of each.
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

// mostRules is of how many rules decide() is proved. The formula of its tables grows with the square of their number: of 200 rules it takes seconds to
// make, and of 1,000 more than ten minutes.
const mostRules = 250

// ProvesRules reports whether the proof has a part for decide().
func (r *Report) ProvesRules() bool { return r.Rules <= mostRules }

// leftOut is what is not proved of this program.
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
