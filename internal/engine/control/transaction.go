// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// transaction is a change of the running policy. apply, confirm, rollback, the exchange of sets and repair are lists of steps on a transaction
// (steps.go). A step reads the results of the steps before it, and changes the kernel or the struct.
//
// run does the steps of a list in order. Before each step it pushes the step's undo onto a stack, so that a step that fails half way is also undone.
// When a step fails, all undos run, the last one first. After that the previous policy runs again, and nothing of the change is in the kernel. A step
// that cannot be undone sets final. Errors after such a step are late: the change is in force, and the next command completes it. each does all steps
// of a list, although some may fail.
//
// A process that is killed runs no undo. Instead, deadlines in the kernel expire (deadlines.go), and the next command completes or undoes the change
// (mend.go). So the order of the steps, and not undo, ensures that a packet that both policies drop is always dropped.
type transaction struct {
	in    Instance
	state *datapath.State
	live  *generation.Live // the policy that runs when the transaction starts, with the tools of netfilter; empty when none runs

	undo  []func(context.Context) error // functions that undo the steps so far, in the order of the steps
	final bool                          // the change cannot be undone any more
	late  []error                       // errors of steps after final was set
	notes []string                      // for the operator

	// The request.
	compiled *Compiled // the policy of an apply, adapted to the target
	options  ApplyOptions
	target   plan.Target
	choice   string                 // why this target was chosen, if the operator named none
	trial    time.Duration          // time of the trial; 0: no trial
	moves    generation.Moves       // of the devices, after the switch
	move     *manifest.Move         // the move, when the apply only moves rules of the running policy; else nil
	of       *generation.Generation // the generation that a move or an exchange was made for

	// The present state.
	now       *generation.Generation // the newest generation that runs, or the last one if its devices have gone; nil when there is none
	base      *generation.Generation // the generation that runs if the change fails or is not confirmed; nil for none
	ended     *generation.Generation // the generation whose trial the change ends; nil for none
	tried     int                    // the number of ended; 0 for none
	manifests []*manifest.Manifest   // manifests of all generations that run, newest first; if none runs, of the one whose devices have gone
	foreign   error                  // why the maps of now cannot be read; nil: they can
	counters  *ebpf.Map              // the counters of the instance; nil when there are none, or when they cannot be read
	counted   *manifest.Counts       // the counts of now; nil when nothing runs
	inherits  datapath.Inherited     // state besides the counters that the next program takes over

	// The state to reach.
	next     *generation.Generation   // the generation to confirm or to return to, which is in the kernel already; else nil
	manifest *manifest.Manifest       // the manifest of the new policy; nil when no policy will run
	stages   *plan.Plan               // the stages of the rules
	modes    map[string]datapath.Mode // modes of devices that do not support the requested mode
	found    []ir.Handshake           // how connections to protected services are answered
	slots    manifest.SlotPlan        // slots of the counters in XDP
	source   []byte                   // the source to store with the generation; nil: none
	xdp      *xdpgen.Program
	program  *datapath.Program                     // the program that is loaded into the kernel but attached to no device; nil without XDP
	fresh    []uint32                              // counter slots of temporary rules that must start at zero
	began    manifest.Seeds                        // the initial values of the new counters in netfilter
	kept     map[string][]ban.Ban                  // entries of dynamic sets, by the name of the set
	saved    map[string]bool                       // sets whose entries in kept come from Instance.Bans
	bans     int                                   // number of entries in dynamic sets
	begin    time.Time                             // when the loading of rulesets started
	rulesets []*netfilter.Ruleset                  // the rulesets of the new policy, and the stand-ins
	old      map[netfilter.Kind]*netfilter.Ruleset // the old rulesets that they replace
	entered  []*netfilter.Ruleset                  // rulesets that are in the kernel already, or have new content

	// The result.
	number   int // number of the generation; 0: none is installed
	returns  int // the generation that returns when a trial ends unconfirmed, 0 for none
	attached []AppliedDevice
	switched bool // whether devices have other programs and can return

	// For an exchange.
	lists   *lists.Change
	was     *Compiled // the policy before the exchange
	content []byte    // the source after the exchange
	held    error     // names the sets that keep their content

	// For a repair or mend.
	repaired *Repaired // the restored parts
	at       scope
	restore  bool // also restore parts that other tools have removed
}

// step is one step of a list. It has a name for readers and tests, and a function do. The function undo undoes the step, also if do has done only a
// part. A step without undo does not change any verdict.
type step struct {
	name string
	do   func(*transaction, context.Context) error
	undo func(*transaction, context.Context) error
}

// applying starts the transaction of an apply. Its first steps find the running policy.
func (in Instance) applying(state *datapath.State, t transaction) *transaction {
	t.in, t.state, t.trial = in, state, t.options.Confirm
	t.live = &generation.Live{State: state, Tools: map[netfilter.Kind]netfilter.Tool{}}
	return &t
}

// over starts a transaction on the running policy.
func (in Instance) over(l *generation.Live) *transaction {
	t := &transaction{in: in, state: l.State, live: l, base: l.Base()}
	if t.runs() {
		t.now = l.Generations[0]
	}
	return t
}

// run does the steps in order. When a step fails or ctx ends, run undoes the steps so far.
func (t *transaction) run(ctx context.Context, steps []step) error {
	for _, s := range steps {
		err := ctx.Err()
		if err == nil {
			if s.undo != nil {
				t.undo = append(t.undo, func(ctx context.Context) error { return s.undo(t, ctx) })
			}
			err = s.do(t, ctx)
		}
		if err != nil && t.final {
			t.late = append(t.late, err)
		} else if err != nil {
			return t.takeBack(context.WithoutCancel(ctx), err)
		}
	}
	return nil
}

// takeBack undoes the steps, the last one first. It returns err, joined with the errors of the undos.
func (t *transaction) takeBack(ctx context.Context, err error) error {
	var errs []error
	for _, undo := range slices.Backward(t.undo) {
		errs = append(errs, undo(ctx))
	}
	t.undo = nil
	if failed := errors.Join(errs...); failed != nil {
		return errors.Join(err, fmt.Errorf("taking back what was done: %w", failed))
	}
	return err
}

// each does all steps, and joins their errors with the late errors.
func (t *transaction) each(ctx context.Context, steps []step) error {
	for _, s := range steps {
		t.late = append(t.late, s.do(t, ctx))
	}
	return errors.Join(t.late...)
}

// note adds a note unless it is "".
func (t *transaction) note(text string) {
	if text != "" {
		t.notes = append(t.notes, text)
	}
}

// close closes all open generations, maps and programs. The state in the kernel stays.
func (t *transaction) close() {
	for _, g := range []*generation.Generation{t.now, t.next} {
		if g != nil && !slices.Contains(t.live.All(), g) {
			g.Close()
		}
	}
	t.live.Close()
	if t.counters != nil {
		t.counters.Close()
	}
	t.inherits.Close()
	if t.program != nil {
		t.program.Close()
	}
}

// runs reports whether a generation decides about packets.
func (t *transaction) runs() bool { return len(t.live.Generations) > 0 }

// programs reports whether XDP takes part in the change.
func (t *transaction) programs() bool {
	has := func(g *generation.Generation) bool { return g != nil && g.Program != nil }
	return t.target == plan.TargetXDP || has(t.now) || slices.ContainsFunc(t.live.All(), has)
}

// both reports whether XDP and netfilter take part in the change.
func (t *transaction) both() bool { return t.programs() && len(t.rulesets)+len(t.old) > 0 }

// toProgram reports whether the next policy uses XDP.
func (t *transaction) toProgram() bool {
	return t.program != nil || t.next != nil && t.next.Program != nil
}
