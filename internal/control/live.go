package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/dynamicset"
	"github.com/floodwall/floodwall/internal/manifest"
	"github.com/floodwall/floodwall/internal/netfilter"
	"github.com/floodwall/floodwall/internal/ruleset"
	"github.com/floodwall/floodwall/internal/xdp"
)

// generation is a policy in the kernel: an XDP program, rulesets in netfilter, or both.
type generation struct {
	number   int
	manifest *manifest.Manifest
	program  *datapath.Generation // nil when it runs in netfilter alone
}

// live is the policy that runs. There is more than one generation only if an apply died while it went from device to device.
type live struct {
	state       *datapath.State
	generations []*generation // that decide, newest first
	standby     *generation   // that decides again when a trial ends unconfirmed, if one goes on
	trial       *trial
	tools       map[ruleset.Kind]ruleset.Tool
}

// trial is a policy's time to be confirmed.
type trial struct {
	left time.Duration
	old  int // the generation to return to, 0 for none
}

// open opens what runs. It returns datapath.ErrNotLoaded when nothing does.
func (in Instance) open(ctx context.Context) (*live, error) {
	state, err := datapath.OpenState(in.Dir, false)
	if err != nil {
		return nil, err
	}
	l, err := openLive(ctx, state)
	if errors.Is(err, datapath.ErrNotLoaded) { // or its rules moved from one place in the kernel to the other between the looks at both
		l, err = openLive(ctx, state)
	}
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil, fallen(state)
	}
	return l, err
}

// readWait is the time for which a reader waits for a command that changes the state: a move of rules takes less.
const readWait = 300 * time.Millisecond

// reading runs fn on the policy that runs. No change happens meanwhile, unless fn takes long. It returns datapath.ErrNotLoaded if nothing
// runs.
func (in Instance) reading(ctx context.Context, fn func(*live) error) error {
	state, err := datapath.OpenState(in.Dir, false)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	unlock, err := state.Lock(limited)
	if err == nil {
		defer unlock()
	} else if !errors.Is(err, datapath.ErrLocked) {
		return err
	}
	l, err := in.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	return fn(l)
}

// openLive opens what runs in a state. It returns datapath.ErrNotLoaded when nothing does.
func openLive(ctx context.Context, state *datapath.State) (*live, error) {
	l, err := openAny(ctx, state)
	if err == nil && len(l.generations) == 0 {
		l.close()
		return nil, datapath.ErrNotLoaded
	}
	return l, err
}

// openAny opens what runs in a state, if only remains.
func openAny(ctx context.Context, state *datapath.State) (*live, error) {
	l := &live{state: state, tools: map[ruleset.Kind]ruleset.Tool{}}
	for _, step := range []func(context.Context) error{l.programs, l.records, l.trials} {
		if err := step(ctx); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

// programs finds the generations that have an XDP program.
func (l *live) programs(context.Context) error {
	running, err := l.state.Running()
	if err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
		return err
	}
	for i, p := range running {
		g, err := ofProgram(p)
		if err != nil {
			datapath.CloseAll(running[i:])
			return err
		}
		l.generations = append(l.generations, g)
	}
	standby, err := l.state.Standby()
	if standby != nil && err == nil {
		l.standby, err = ofProgram(standby)
	}
	return err
}

func ofProgram(p *datapath.Generation) (*generation, error) {
	m, err := manifest.Read(p.Number, p.Manifest)
	return &generation{p.Number, m, p}, err
}

// records finds the generations that run in netfilter alone: which does is for the kernel to say.
func (l *live) records(ctx context.Context) error {
	records, err := l.state.Records()
	if err != nil || len(records) == 0 {
		return err
	}
	settled, err := l.settledProgram()
	if err != nil {
		return err
	}
	onTrial := len(l.generations) > 0 && settled == 0 // the newest, so that one that has returned early stands by
	for _, r := range records {
		if r.Number < settled { // what is left of it in netfilter is for mend to remove
			continue
		}
		m, err := manifest.Read(r.Number, r.Manifest)
		if err != nil {
			return err
		}
		real := m.Ruleset()
		if real == nil {
			continue
		}
		t, err := l.tool(ctx, real.Kind)
		if err != nil {
			return err
		}
		left, state, err := t.Trial(ctx, real.Name)
		if err != nil {
			return err
		}
		g := &generation{number: r.Number, manifest: m}
		switch {
		case state.Decides() && (state != netfilter.Returned || !onTrial || l.standby != nil):
			l.generations = append(l.generations, g)
			onTrial = onTrial || state == netfilter.OnTrial
		case (left > 0 || state == netfilter.Returned) && l.standby == nil:
			l.standby = g
		}
	}
	return nil
}

// settledProgram is the number of the newest XDP program if it decides for good, else 0.
func (l *live) settledProgram() (int, error) {
	if len(l.generations) == 0 {
		return 0, nil
	}
	of, err := l.state.Trial()
	if number := l.generations[0].number; err == nil && (of == nil || of.New != number || of.Expired()) {
		return number, nil
	}
	return 0, err
}

// trials finds out whether the newest generation is on trial.
func (l *live) trials(ctx context.Context) error {
	if len(l.generations) == 0 {
		return nil
	}
	g := l.generations[0]
	of, err := l.state.Trial()
	if err != nil {
		return err
	}
	if of != nil && of.New == g.number && !of.Expired() {
		l.trial = &trial{of.Left(), of.Old}
	}
	if real := g.manifest.Ruleset(); l.trial == nil && g.program == nil && real != nil {
		left, state, err := l.tools[real.Kind].Trial(ctx, real.Name)
		if err != nil {
			return err
		}
		if left > 0 && state.Decides() {
			l.trial = &trial{left: left}
		}
	}
	if l.trial != nil && l.standby != nil {
		l.trial.old = l.standby.number
	}
	return nil
}

// base is the generation that runs if the next change fails: not one on trial. It is nil if there is none.
func (l *live) base() *generation {
	if l.trial != nil || len(l.generations) == 0 {
		return l.standby
	}
	return l.generations[0]
}

// rulesets are those that a generation has in the kernel.
func (l *live) rulesets(g *generation) []*ruleset.Ruleset {
	if l.trial != nil && g == l.generations[0] {
		return g.manifest.AllRulesets()
	}
	return g.manifest.Rulesets
}

// tool finds a tool of netfilter, once.
func (l *live) tool(ctx context.Context, k ruleset.Kind) (ruleset.Tool, error) {
	if t, ok := l.tools[k]; ok {
		return t, nil
	}
	t, err := ruleset.FindTool(ctx, k)
	if err == nil {
		l.tools[k] = t
	}
	return t, err
}

// all are the generations that a change must reach to hold whether or not a trial is confirmed, the one in force last.
func (l *live) all() []*generation {
	list := slices.Clone(l.generations)
	if l.standby != nil {
		list = append(list, l.standby)
	}
	slices.Reverse(list)
	return list
}

// manifests are those of all.
func (l *live) manifests() (list []*manifest.Manifest) {
	for _, g := range l.all() {
		list = append(list, g.manifest)
	}
	return list
}

func (l *live) close() {
	for _, g := range l.all() {
		g.close()
	}
}

func (g *generation) close() {
	if g.program != nil {
		g.program.Close()
	}
}

// foreign returns a *datapath.FormatError when the maps of a generation's program are of another version, so that they cannot be
// read. It runs all the same, and an apply can take its place.
func (g *generation) foreign() error {
	if g == nil || g.program == nil {
		return nil
	}
	return g.program.Knows(append([]string{xdp.Counters, xdp.Limits, xdp.LimitInfos, xdp.ProtectionStates, xdp.Question}, dynamicset.Maps...)...)
}
