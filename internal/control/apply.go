package control

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/xdp"
)

// Instance is a Floodwall in one network namespace, known by its state directory in the BPF file system.
type Instance struct{ Dir string }

// lockWait is how long a command waits for another one that changes the state.
const lockWait = 10 * time.Second

// ApplyOptions are the choices of one apply.
type ApplyOptions struct {
	Devices  []string      // in place of the policy's
	Mode     datapath.Mode // "" is auto
	DryRun   bool          // everything up to loading the program, and the checks of it; nothing is attached
	Sessions []Session     // sessions that the policy must not cut; nil skips the guard
}

// Applied is what an apply did, or with DryRun would do.
type Applied struct {
	Devices    []*datapath.Device `json:"devices"`
	Generation int                `json:"generation"`
	Rules      int                `json:"rules"`
	Form       compile.Form       `json:"form"`
	Entries    int                `json:"entries"` // of all static sets
	Bans       int                `json:"bans"`    // entries of dynamic sets that were kept
	Notes      []string           `json:"notes,omitempty"`
	Seconds    float64            `json:"seconds"` // from the policy's text to its enforcement
}

// Apply makes a compiled policy the one that runs. Either it does on all devices, or nothing has changed and the error
// says why; at no moment is a device that was filtered unfiltered.
func (in Instance) Apply(ctx context.Context, c *Compiled, o ApplyOptions) (*Applied, error) {
	start := time.Now()
	state, err := datapath.OpenState(in.Dir, true)
	if err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, state)
	if err != nil {
		return nil, err
	}
	defer unlock()
	a := &apply{state: state, compiled: c, options: o}
	defer a.close()
	applied, err := a.run(ctx)
	if err != nil || o.DryRun {
		err = errors.Join(err, state.RemoveIfEmpty())
	}
	if err != nil {
		return nil, err
	}
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

// apply is one apply in progress.
type apply struct {
	state    *datapath.State
	compiled *Compiled
	options  ApplyOptions

	before    []*datapath.Generation // those that run, newest first; or one whose devices have gone; or none
	manifests []*manifest            // theirs
	stages    *compile.Plan
	plan      slotPlan
	counters  *ebpf.Map // of the instance; nil when there is none, or it is too small
	outgrown  *ebpf.Map
	program   *datapath.Program
	xdp       *compile.XDP
	manifest  *manifest
	bans      int
	notes     []string
}

// run goes from step to step as long as ctx lasts. What follows them changes what runs, and is not interrupted.
func (a *apply) run(ctx context.Context) (*Applied, error) {
	for _, step := range []func() error{a.look, a.load, a.keepCounters, a.fillDynamic, a.guard, a.tags} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := step(); err != nil {
			return nil, err
		}
	}
	applied := &Applied{
		Rules: len(a.compiled.Program.Rules), Form: a.xdp.Form, Bans: a.bans,
		Notes: append(a.compiled.Notes, a.notes...),
	}
	for _, s := range a.manifest.Sets {
		applied.Entries += s.Entries
	}
	if a.options.DryRun {
		return applied, a.devicesExist()
	}
	text, err := json.Marshal(a.manifest)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	applied.Devices, err = a.state.Install(a.program, text, a.attachments(), 0)
	if err != nil {
		return nil, err
	}
	applied.Generation = applied.Devices[0].Generation
	return applied, nil
}

// look finds out what runs now, or ran before its devices went away.
func (a *apply) look() (err error) {
	a.before, err = a.state.Running()
	if err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
		return err
	}
	if len(a.before) == 0 {
		latest, err := a.state.Latest()
		if err != nil {
			return err
		}
		if latest != nil {
			a.before = []*datapath.Generation{latest}
		}
	}
	for _, g := range a.before {
		m, err := readManifest(g)
		if err != nil {
			return err
		}
		a.manifests = append(a.manifests, m)
	}
	a.counters, err = a.state.Counters()
	return err
}

// load compiles for XDP, now that the counter slots can be chosen, and loads the program.
func (a *apply) load() (err error) {
	if a.stages, err = compile.Hoist(a.compiled.Program, compile.TargetXDP); err != nil {
		return fmt.Errorf("%s: %w", a.compiled.Policy.File, err)
	}
	a.plan = planSlots(a.compiled.Program, a.manifests)
	if a.counters != nil && a.counters.MaxEntries() < a.plan.most() {
		a.outgrown, a.counters = a.counters, nil
	}
	key, err := randomKey()
	if err != nil {
		return err
	}
	program, numbers := a.stages.Only()
	options := compile.XDPOptions{QuestionKey: key, Slots: make([]uint32, len(numbers))}
	for i, rule := range numbers {
		options.Slots[i] = a.plan.slots[rule]
	}
	if a.xdp, err = compile.ToXDP(program, options); err != nil {
		return fmt.Errorf("%s: %w", a.compiled.Policy.File, err)
	}
	if a.program, err = datapath.Load(&a.xdp.Image, a.counters); err != nil {
		return err
	}
	a.manifest = newManifest(a.compiled, a.stages, a.plan.slots)
	a.manifest.Form, a.manifest.Key = a.xdp.Form, key
	return nil
}

// keepCounters brings the counts to a new map when the old one became too small, and lets new rules begin at zero: in
// either map their slots may have counts of rules that went.
func (a *apply) keepCounters() error {
	if a.outgrown == nil && a.counters == nil {
		return nil // a new map of zeros
	}
	counters := a.counters
	if a.outgrown != nil {
		counters = a.program.Map(xdp.Counters)
		if err := move(a.outgrown, counters); err != nil {
			return err
		}
	}
	return a.plan.zero(counters)
}

// randomKey draws the key of questions, never 0.
func randomKey() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("drawing a key: %w", err)
	}
	return binary.NativeEndian.Uint64(b[:]) | 1, nil
}

func (a *apply) attachments() []datapath.Attachment {
	devices := a.options.Devices
	if devices == nil {
		devices = a.compiled.Devices()
	}
	mode := a.options.Mode
	if mode == "" {
		mode = datapath.Auto
	}
	var to []datapath.Attachment
	for _, d := range devices {
		to = append(to, datapath.Attachment{Device: d, Mode: mode})
	}
	return to
}

// devicesExist is what a dry run can say about the devices.
func (a *apply) devicesExist() error {
	for _, to := range a.attachments() {
		if err := datapath.DeviceExists(to.Device); err != nil {
			return err
		}
	}
	return nil
}

func (a *apply) close() {
	datapath.CloseAll(a.before)
	for _, m := range []*ebpf.Map{a.counters, a.outgrown} {
		if m != nil {
			m.Close()
		}
	}
	if a.program != nil {
		a.program.Close()
	}
}
