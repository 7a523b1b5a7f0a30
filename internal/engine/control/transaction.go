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

// transaction is a change of what runs. apply, confirm, rollback, the exchange of sets and repair are lists of steps on it (steps.go). A step
// reads what the steps before it have found, and changes the kernel or the struct.
//
// run does the steps of a list in order. Before it does a step it puts the step's undo on the stack, so that a step that fails half way is
// taken back, too. When a step fails, all undos run, last first: what ran before runs again, and nothing of the change is in the kernel.
// A step that nothing can take back sets final. Errors after it are late: the change is in force, and the next command does what is left.
// each does the steps of a list even if some fail.
//
// A process that is killed runs no undo. In its place deadlines in the kernel end (deadlines.go), and the next command completes the
// change or takes it back (mend.go). So the order of the steps, not undo, is what keeps a packet out that both policies drop.
type transaction struct {
	in    Instance
	state *datapath.State
	live  *generation.Live // what runs when it begins, with the tools of netfilter; empty when nothing runs

	undo  []func(context.Context) error // takes back the steps so far, first to last
	final bool                          // nothing can be taken back any more
	late  []error                       // of steps after that
	notes []string                      // for the operator

	// What is asked for.
	compiled *Compiled // of an apply, as the target has it
	options  ApplyOptions
	target   plan.Target
	choice   string                 // why it is this target, when it was to be chosen
	trial    time.Duration          // 0 is none
	move     *manifest.Move         // of the rules of the policy that runs, when the apply is no more than that; else nil
	of       *generation.Generation // that a move or an exchange is made for

	// What runs.
	now       *generation.Generation // the newest that runs, or whose devices have gone; nil when there is none
	base      *generation.Generation // that runs if the change fails, or is not confirmed; nil for none
	ended     *generation.Generation // whose trial the change ends; nil for none
	tried     int                    // its number; 0 for none
	manifests []*manifest.Manifest   // of all that run, newest first; else of the one whose devices have gone
	foreign   error                  // why the maps of now cannot be read; nil: they can
	counters  *ebpf.Map              // of the instance; nil when there are none, or when they cannot be read
	counted   *manifest.Counts       // what now has counted; nil when nothing runs
	inherits  datapath.Inherited     // what the next program goes on with beside the counters

	// What is to run.
	next     *generation.Generation   // when it is in the kernel already: that is confirmed, or before now; else nil
	manifest *manifest.Manifest       // nil for nothing
	stages   *plan.Plan               // of the rules
	modes    map[string]datapath.Mode // of devices that cannot have the one that is asked for
	found    []ir.Handshake           // how protected services are answered for
	slots    manifest.SlotPlan        // of the counters in XDP
	source   []byte                   // to keep with the generation; nil is nothing
	xdp      *xdpgen.Program
	program  *datapath.Program                     // in the kernel, on no device; nil without XDP
	fresh    []uint32                              // counter slots of temporary rules that must begin at zero
	began    manifest.Seeds                        // what its counters in netfilter begin with
	kept     map[string][]ban.Blocked              // entries of dynamic sets, by the set
	saved    map[string]bool                       // sets of which kept comes from Instance.Bans
	bans     int                                   // entries of dynamic sets
	begin    time.Time                             // when the first ruleset was loaded, or would have been
	rulesets []*netfilter.Ruleset                  // of it, and those that stand in
	old      map[netfilter.Kind]*netfilter.Ruleset // in whose places they come
	entered  []*netfilter.Ruleset                  // that are in the kernel so far, or have other content

	// What became of it.
	number   int // of the generation; 0: none is installed
	returns  int // the generation that returns when a trial ends unconfirmed, 0 for none
	attached []AppliedDevice
	switched bool // devices have other programs, and can go back

	// Of an exchange.
	lists   *lists.Change
	was     *Compiled // compiled before it
	content []byte    // source after it
	held    error     // says which sets stay as they are

	// Of a repair, or a mend.
	repaired *Repaired // what was put back
	at       scope
	restore  bool // what other tools have removed, too
}

// step is a line of a list: its name for readers and tests, what it does, and what takes back what it did, or the part that it did. A step
// without undo leaves nothing that decides.
type step struct {
	name string
	do   func(*transaction, context.Context) error
	undo func(*transaction, context.Context) error
}

// applying begins an apply, which looks itself at what runs.
func (in Instance) applying(state *datapath.State, t transaction) *transaction {
	t.in, t.state, t.trial = in, state, t.options.Confirm
	t.live = &generation.Live{State: state, Tools: map[netfilter.Kind]netfilter.Tool{}}
	return &t
}

// over begins a transaction over what runs.
func (in Instance) over(l *generation.Live) *transaction {
	t := &transaction{in: in, state: l.State, live: l, base: l.Base()}
	if t.runs() {
		t.now = l.Generations[0]
	}
	return t
}

// run does steps in order, until ctx ends. When one fails it takes back what was done.
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

// takeBack takes back what was done, last first, because of err.
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

// each does all steps, and joins their errors with the late ones.
func (t *transaction) each(ctx context.Context, steps []step) error {
	for _, s := range steps {
		t.late = append(t.late, s.do(t, ctx))
	}
	return errors.Join(t.late...)
}

// note adds a note, none when it is "".
func (t *transaction) note(text string) {
	if text != "" {
		t.notes = append(t.notes, text)
	}
}

// close closes what was opened. What is in the kernel stays.
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

// runs reports whether anything decides.
func (t *transaction) runs() bool { return len(t.live.Generations) > 0 }

// programs reports whether XDP has a part in the change.
func (t *transaction) programs() bool {
	has := func(g *generation.Generation) bool { return g != nil && g.Program != nil }
	return t.target == plan.TargetXDP || has(t.now) || slices.ContainsFunc(t.live.All(), has)
}

// both reports whether XDP and netfilter have a part in the change.
func (t *transaction) both() bool { return t.programs() && len(t.rulesets)+len(t.old) > 0 }

// toProgram reports whether XDP has a part in what is to run.
func (t *transaction) toProgram() bool {
	return t.program != nil || t.next != nil && t.next.Program != nil
}
