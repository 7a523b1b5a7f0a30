package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/banlog"
	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/cost"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/hostfacts"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/rights"
	"github.com/floodwall/floodwall/policy"
)

// Instance is a Floodwall in one network namespace, known by its state directory in the BPF file system.
type Instance struct {
	Dir  string
	Bans *banlog.Log // where entries of dynamic sets are kept over a reboot; nil: they are not
}

// lockWait is how long a command waits for another one that changes the state.
const lockWait = 10 * time.Second

// ApplyOptions are the choices of one apply.
type ApplyOptions struct {
	Target   compile.Target      // "" or TargetAuto is the first of XDP, nftables and iptables that this host can do
	Devices  []string            // in place of the policy's
	Mode     datapath.Mode       // of XDP; "" is auto
	DryRun   bool                // everything up to loading the program, and the checks of it; nothing is attached
	Sessions []hostfacts.Session // sessions that the policy must not cut; nil skips the guard
	Boot     string              // names the copy of the policy that comes back after a reboot; "" is none
	Costs    *cost.Model         // of this host, by which rules are placed; nil: as early as they can be
	Confirm  time.Duration       // after which the policy before returns unless Confirm is called; 0 is no trial
	Read     func() error        // called when all files that the policy names have been read; its error ends the apply; nil: nothing
}

// TargetAuto stands for the best target that a host can do.
const TargetAuto compile.Target = "auto"

// Applied is what an apply did, or with DryRun would do.
type Applied struct {
	Target     compile.Target        `json:"target"`
	Choice     string                `json:"choice,omitempty"` // why it is this target, when it was to be chosen
	Devices    []AppliedDevice       `json:"devices"`
	Generation int                   `json:"generation"`
	Rules      int                   `json:"rules"`
	Stages     map[compile.Stage]int `json:"stages"` // how many rules run at each
	Form       compile.Form          `json:"form,omitempty"`
	Entries    int                   `json:"entries"`                  // of all static sets
	Bans       int                   `json:"bans"`                     // entries of dynamic sets that were kept
	Confirm    float64               `json:"confirm_within,omitempty"` // seconds until the policy before returns
	Returns    int                   `json:"returns_to,omitempty"`     // its generation; 0 is none
	Notes      []string              `json:"notes,omitempty"`
	Seconds    float64               `json:"seconds"` // from the policy's text to its enforcement
}

// AppliedDevice is a device that a policy was applied to.
type AppliedDevice struct {
	Name  string        `json:"name"`
	Stage compile.Stage `json:"stage"` // the first at which rules run
	Mode  datapath.Mode `json:"mode,omitempty"`
}

// Apply makes a policy the one that runs. Either it does on all devices, or nothing has changed and the error
// says why; at no moment is a device that was filtered unfiltered.
func (in Instance) Apply(ctx context.Context, p *policy.Policy, o ApplyOptions) (*Applied, error) {
	start := time.Now()
	host, err := hostfacts.Discover(ctx, p, o.Devices)
	if err != nil {
		return nil, err
	}
	c, err := lowerFor(ctx, p, host)
	if err == nil && o.Read != nil {
		err = o.Read()
	}
	if err != nil {
		return nil, err
	}
	state, err := datapath.OpenState(in.Dir, true)
	if err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, state)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var notes []string
	if !o.DryRun {
		if _, err := in.sweep(ctx, state, true); err != nil {
			notes = append(notes, fmt.Sprintf("what runs could not be put straight first: %v", err))
		}
		if _, err := in.releaseProxy(ctx); err != nil {
			notes = append(notes, fmt.Sprintf("what is left of SYNPROXY stays: %v", err))
		}
	}
	applied, err := in.choose(ctx, state, c, o)
	if err != nil || o.DryRun {
		err = errors.Join(err, state.RemoveIfEmpty())
	}
	if err != nil {
		return nil, err
	}
	if !o.DryRun {
		notes = append(notes, in.bansKept(ctx, state)...)
	}
	applied.Notes = append(applied.Notes, notes...)
	applied.Seconds = time.Since(start).Seconds()
	return applied, nil
}

// lock waits for other commands for a while.
func lock(ctx context.Context, state *datapath.State) (unlock func(), err error) {
	limited, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err = state.Lock(limited)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return unlock, err
}

// apply is one apply in progress, to one target.
type apply struct {
	in       Instance
	state    *datapath.State
	compiled *Compiled
	options  ApplyOptions
	target   compile.Target
	choice   string

	live      *live       // what runs; nil when nothing does
	foreign   error       // why the maps of the one before cannot be read; nil: they can
	before    *generation // that this one follows: the newest that runs, or whose devices have gone, or nil
	manifests []*manifest // of all that run, newest first; else of the one before

	stages   *compile.Plan
	plan     slotPlan
	counters *ebpf.Map // of the instance; nil when there is none, or it is too small
	outgrown *ebpf.Map
	move     *Move              // that this is one, of the policy that runs; else nil
	was      *tallies           // what the one before has counted; nil when nothing runs
	source   []byte             // to keep; nil is nothing
	found    []ir.Handshake     // out about the protections
	inherits datapath.Inherited // what the program goes on with beside the counters
	program  *datapath.Program  // nil without XDP
	xdp      *compile.XDP
	part     *part // in netfilter; nil when there is nothing for it to do
	manifest *manifest
	began    seeds
	kept     map[string][]Blocked // entries of dynamic sets, by the set
	saved    map[string]bool      // sets of which kept comes from Instance.Bans
	bans     int
	notes    []string
}

// run goes from step to step as long as ctx lasts. What follows them changes what runs, and is not interrupted.
func (a *apply) run(ctx context.Context) (*Applied, error) {
	steps := []func(context.Context) error{a.look, a.protect, a.hoist, a.keepBans, a.netfilter, a.guard}
	if a.target == compile.TargetXDP {
		if err := rights.Check("loading the XDP program", rights.BPF, rights.NetAdmin, rights.Perfmon); err != nil {
			return nil, err
		}
		steps = []func(context.Context) error{a.look, a.protect, a.hoist, a.load, a.keepCounters, a.keepConnections, a.keepBans, a.fillDynamic, a.netfilter, a.guard, a.tags}
	}
	if err := inTurn(ctx, steps); err != nil {
		return nil, err
	}
	applied := a.applied()
	if a.options.DryRun {
		return applied, a.devicesExist()
	}
	if err := a.finish(ctx, applied); err != nil {
		return applied, err
	}
	if _, err := a.state.RotateKeys(); err != nil {
		applied.Notes = append(applied.Notes, fmt.Sprintf("SYN cookies keep their key: %v", err))
	}
	return applied, nil
}

// inTurn goes from step to step as long as ctx lasts.
func inTurn(ctx context.Context, steps []func(context.Context) error) error {
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// finish changes what runs.
func (a *apply) finish(ctx context.Context, applied *Applied) error {
	text, err := json.Marshal(a.manifest)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := a.before.windDown(ctx, a.manifest); err != nil {
		return err
	}
	return a.enforce(context.WithoutCancel(ctx), applied, text)
}

// applied is what there is to say before anything has been done.
func (a *apply) applied() *Applied {
	out := &Applied{
		Target: a.target, Choice: a.choice, Rules: len(a.compiled.Program.Rules), Stages: map[compile.Stage]int{}, Bans: a.bans,
		Notes: append(a.compiled.NotesFor(a.target), a.notes...),
	}
	if a.xdp != nil {
		out.Form = a.xdp.Form
	}
	for _, place := range a.stages.Rules {
		out.Stages[place.Stage]++
	}
	for _, s := range a.manifest.Sets {
		out.Entries += s.Entries
	}
	return out
}

// look finds out what runs now, or ran before its devices went away.
func (a *apply) look(ctx context.Context) (err error) {
	a.live, err = openLive(ctx, a.state)
	switch {
	case err == nil:
		a.before = a.live.generations[0]
		for _, g := range a.live.generations {
			a.manifests = append(a.manifests, g.manifest)
		}
		if a.live.standby != nil { // its program may count again
			a.manifests = append(a.manifests, a.live.standby.manifest)
		}
	case !errors.Is(err, datapath.ErrNotLoaded):
		return err
	default:
		if err := a.lookBack(); err != nil {
			return err
		}
	}
	if a.foreign = a.before.foreign(); a.foreign != nil {
		a.note(a.foreign.Error() + ": counts begin anew")
	} else if a.counters, err = a.state.Counters(); err != nil {
		return err
	}
	a.inherits, err = a.state.Inherited()
	return err
}

// lookBack finds the policy whose devices have all gone.
func (a *apply) lookBack() error {
	latest, err := a.state.Latest()
	if latest == nil || err != nil {
		return err
	}
	a.before, err = ofProgram(latest)
	if err == nil {
		a.manifests = []*manifest{a.before.manifest}
	}
	return err
}

// hoist finds the stage of each rule.
func (a *apply) hoist(ctx context.Context) (err error) {
	if err := a.place(ctx); err != nil {
		return err
	}
	a.plan = planSlots(a.compiled.Program, a.manifests)
	a.manifest = newManifest(a.compiled, a.stages, a.plan)
	a.manifest.operators(a.options.Sessions)
	a.recordProtections()
	if note := a.in.bansWaitFor(a.manifest); note != "" {
		a.notes = append(a.notes, note)
	}
	a.manifest.Choice, a.manifest.Devices, a.manifest.Boot = a.choice, a.devices(), a.options.Boot
	if a.manifest.Mode = a.options.Mode; a.move != nil {
		a.manifest.Mode = a.before.manifest.Mode
	}
	a.manifest.behind(a.compiled.Program)
	a.warnStrict()
	return a.remember()
}

// devices are the names of the devices to filter.
func (a *apply) devices() []string {
	if a.options.Devices != nil {
		return a.options.Devices
	}
	return a.compiled.Devices()
}

func (a *apply) attachments() (to []datapath.Attachment) {
	mode := a.options.Mode
	if mode == "" {
		mode = datapath.Auto
	}
	for _, d := range a.devices() {
		to = append(to, datapath.Attachment{Device: d, Mode: mode})
	}
	return to
}

// devicesExist is what a dry run can say about the devices.
func (a *apply) devicesExist() error {
	for _, d := range a.devices() {
		if err := datapath.DeviceExists(d); err != nil {
			return err
		}
	}
	return nil
}

func (a *apply) close() {
	switch {
	case a.live != nil:
		a.live.close()
	case a.before != nil:
		a.before.close()
	}
	for _, m := range []*ebpf.Map{a.counters, a.outgrown} {
		if m != nil {
			m.Close()
		}
	}
	a.inherits.Close()
	if a.program != nil {
		a.program.Close()
	}
}
