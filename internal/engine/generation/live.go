// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// Generation is a policy in the kernel: an XDP program, rulesets in netfilter, or both.
type Generation struct {
	Number   int
	Manifest *manifest.Manifest
	Program  *datapath.Generation // nil when the policy runs only in netfilter
	Moves    Moves                // of the devices of a running program
}

// Live is the running policy. It has more than one generation only if an apply died after it had changed some of the devices.
type Live struct {
	State       *datapath.State
	Generations []*Generation // the generations that decide, newest first
	Standby     *Generation   // the generation that decides again if the present trial is not confirmed; nil for none
	Trial       *Trial
	Tools       map[netfilter.Kind]netfilter.Tool
}

// Trial is the time within which a policy must be confirmed.
type Trial struct {
	Left time.Duration
	Old  int // the generation to return to, 0 for none
}

// Find opens the running policy of the instance with the state directory dir. The caller must close it. Find returns datapath.ErrNotLoaded when no
// policy is in force, and a *RemovedError when a policy is in force but no part of it is left in the kernel.
func Find(ctx context.Context, dir string) (*Live, error) {
	state, err := datapath.OpenState(dir, false)
	if err != nil {
		return nil, err
	}
	l, err := Open(ctx, state)
	if errors.Is(err, datapath.ErrNotLoaded) { // also if its rules moved between XDP and netfilter after one and before the other was read
		l, err = Open(ctx, state)
	}
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil, whyRemoved(state)
	}
	return l, err
}

// Open opens the running policy of a state. It returns datapath.ErrNotLoaded when no policy runs.
func Open(ctx context.Context, state *datapath.State) (*Live, error) {
	l, err := OpenAny(ctx, state)
	if err == nil && len(l.Generations) == 0 {
		l.Close()
		return nil, datapath.ErrNotLoaded
	}
	return l, err
}

// OpenAny is Open, but without an error when no generation decides. Generations is then empty.
func OpenAny(ctx context.Context, state *datapath.State) (*Live, error) {
	l, err := openOnce(ctx, state)
	if errors.Is(err, errEnded) { // only one trial can end: each policy after it needs the lock, or is found the second time
		l, err = openOnce(ctx, state)
	}
	return l, err
}

// errEnded says that a trial has ended while its generation was being opened. That generation would look confirmed.
var errEnded = errors.New("a trial ended while the running policy was read")

func openOnce(ctx context.Context, state *datapath.State) (*Live, error) {
	l := &Live{State: state, Tools: map[netfilter.Kind]netfilter.Tool{}}
	for _, step := range []func(context.Context) error{l.programs, l.records, l.trials} {
		if err := step(ctx); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// programs finds the generations that have an XDP program.
func (l *Live) programs(context.Context) error {
	running, err := l.State.Running()
	if err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
		return err
	}
	for i, p := range running {
		g, err := OfProgram(p)
		if err != nil {
			datapath.CloseAll(running[i:])
			return err
		}
		l.Generations = append(l.Generations, g)
		if g.Moves, err = readMoves(l.State, g.Number); err != nil {
			datapath.CloseAll(running[i+1:])
			return err
		}
		g.Manifest.Learn(g.Moves)
	}
	standby, err := l.State.Standby()
	if standby != nil && err == nil {
		l.Standby, err = OfProgram(standby)
	}
	return err
}

// OfProgram returns the generation to which an XDP program belongs. Closing the generation also closes the program.
func OfProgram(p *datapath.Generation) (*Generation, error) {
	m, err := manifest.Read(p.Number, p.Manifest)
	return &Generation{Number: p.Number, Manifest: m, Program: p}, err
}

// records finds the generations that run only in netfilter. The kernel determines which of them decides.
func (l *Live) records(ctx context.Context) error {
	records, err := l.State.Records()
	if err != nil || len(records) == 0 {
		return err
	}
	settled, err := l.settledProgram()
	if err != nil {
		return err
	}
	onTrial := len(l.Generations) > 0 && settled == 0 // then only the newest program, so that a generation that has returned early becomes the standby
	for _, r := range records {
		if r.Number < settled { // mend removes its remains in netfilter
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
		t, err := l.Tool(ctx, real.Kind)
		if err != nil {
			return err
		}
		left, state, err := t.Trial(ctx, real.Name)
		if err != nil {
			return err
		}
		g := &Generation{Number: r.Number, Manifest: m}
		switch {
		case state.Decides() && (state != netfilter.Returned || !onTrial || l.Standby != nil):
			if len(l.Generations) == 0 && left > 0 {
				l.Trial = &Trial{Left: left}
			}
			l.Generations = append(l.Generations, g)
			onTrial = onTrial || state == netfilter.OnTrial
		case (left > 0 || state == netfilter.Returned) && l.Standby == nil:
			l.Standby = g
		}
	}
	return nil
}

// settledProgram returns the number of the newest XDP program if it decides and is not on trial. Otherwise it returns 0.
func (l *Live) settledProgram() (int, error) {
	if len(l.Generations) == 0 {
		return 0, nil
	}
	of, err := l.State.Trial()
	if number := l.Generations[0].Number; err == nil && (of == nil || of.New != number) {
		return number, nil
	}
	return 0, err
}

// trials finds out whether the newest generation has a program that is on trial. It returns errEnded if the trial has ended since the generation was
// found.
func (l *Live) trials(context.Context) error {
	if len(l.Generations) == 0 {
		return nil
	}
	of, err := l.State.Trial()
	if err != nil {
		return err
	}
	if of != nil && of.New == l.Generations[0].Number {
		if of.Expired() {
			return errEnded
		}
		l.Trial = &Trial{of.Left(), of.Old}
	}
	if l.Trial != nil && l.Standby != nil {
		l.Trial.Old = l.Standby.Number
	}
	return nil
}

// Base returns the generation that continues to run if the next change fails. This is never the generation on trial. Base returns nil if there is
// none.
func (l *Live) Base() *Generation {
	if l.Trial != nil || len(l.Generations) == 0 {
		return l.Standby
	}
	return l.Generations[0]
}

// Rulesets returns the rulesets that a generation has in the kernel.
func (l *Live) Rulesets(g *Generation) []*netfilter.Ruleset {
	if l.Trial != nil && g == l.Generations[0] {
		return g.Manifest.AllRulesets()
	}
	return g.Manifest.Rulesets
}

// Tool returns the tool for a kind of netfilter, and caches it. If the nft program is missing, Tool still returns a tool for nftables, because some
// of its functions do not need the program.
func (l *Live) Tool(ctx context.Context, k netfilter.Kind) (netfilter.Tool, error) {
	if t, ok := l.Tools[k]; ok {
		return t, nil
	}
	t, err := netfilter.FindTool(ctx, k)
	if err != nil && k == netfilter.KindNft && ctx.Err() == nil {
		t, err = netfilter.NftWithout(err), nil
	}
	if err == nil {
		l.Tools[k] = t
	}
	return t, err
}

// All returns the generations that a change must reach, so that it holds whether or not a trial is confirmed. The generation in force is the last
// one.
func (l *Live) All() []*Generation {
	list := slices.Clone(l.Generations)
	if l.Standby != nil {
		list = append(list, l.Standby)
	}
	slices.Reverse(list)
	return list
}

// Manifests returns the manifests of the generations that All returns, in the same order.
func (l *Live) Manifests() (list []*manifest.Manifest) {
	for _, g := range l.All() {
		list = append(list, g.Manifest)
	}
	return list
}

// Close closes the programs of all generations.
func (l *Live) Close() {
	for _, g := range l.All() {
		g.Close()
	}
}

// Close closes the program, if there is one.
func (g *Generation) Close() {
	if g.Program != nil {
		g.Program.Close()
	}
}

// ProgramID returns the kernel's ID of the XDP program. It returns 0 when there is no program.
func (g *Generation) ProgramID() (ebpf.ProgramID, error) {
	if g.Program == nil {
		return 0, nil
	}
	return g.Program.ID()
}

// Foreign returns a *datapath.FormatError when another version has loaded the generation's program, so that its maps cannot be read. The generation
// still runs, and an apply can replace it.
func (g *Generation) Foreign() error {
	if g == nil || g.Program == nil {
		return nil
	}
	return g.Program.Knows(append([]string{image.Counters, image.Limits, image.LimitInfos, image.ProtectionStates, image.Question}, ban.Maps...)...)
}
