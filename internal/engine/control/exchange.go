package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// Live lists the sets of the policy that runs whose content is exchanged; none when nothing runs.
func (in Instance) Live(ctx context.Context) (sets []manifest.Live, err error) {
	err = in.reading(ctx, func(l *generation.Live) error {
		sets = l.Generations[0].Manifest.Live
		return nil
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		err = nil
	}
	return sets, err
}

// SyncLists exchanges the content of the policy's live sets for that of their last good copies, and of the databases as they are now.
// Nothing else of the policy changes: limits, connections, bans and counters go on. With all it reads every set, else only those whose copy
// or database has changed. It returns the exchanged sets, and ErrChanged if another policy runs by now or one is on trial. A set that
// cannot be read, or that is held (lists.HeldError), keeps its content: the error names it, and the others are exchanged.
func (in Instance) SyncLists(ctx context.Context, all bool) (done []lists.Exchanged, err error) {
	var g *generation.Generation
	err = in.reading(ctx, func(l *generation.Live) error {
		if l.Trial == nil && len(l.Generations) == 1 {
			g = l.Generations[0]
		}
		return nil
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil, nil
	}
	if err != nil || g == nil || len(g.Manifest.Live) == 0 {
		return nil, err
	}
	next, errRead := lists.Changed(in.Feeds, g.Manifest, all)
	x := &exchange{of: g, Change: next}
	if len(next.Content) > 0 {
		err = in.change(ctx, func(l *live) error { return x.run(context.WithoutCancel(ctx), l) })
	}
	if err != nil {
		return nil, errors.Join(err, errRead)
	}
	return next.Done, errors.Join(errRead, x.held)
}

// exchange is a change of the contents of sets of a generation.
type exchange struct {
	of *generation.Generation
	*lists.Change
	held error // says which sets stay as they are
}

// run loads the contents into the kernel, if the generation that they were read for still runs: first into netfilter, in one transaction,
// then into XDP. If the process dies in between, or XDP refuses, the manifest still has the old contents, and the next exchange completes
// the change.
func (x *exchange) run(ctx context.Context, l *live) error {
	if l.Trial != nil || len(l.Generations) != 1 || l.Generations[0].Number != x.of.Number ||
		l.Generations[0].Manifest.Source != x.of.Manifest.Source {
		return ErrChanged
	}
	x.of = l.Generations[0]
	c, err := readSource(l.State, x.of)
	if err == nil && c == nil {
		err = errors.New("what the policy was compiled from is not kept: apply it again")
	}
	if err != nil {
		return err
	}
	if err := x.of.Foreign(); err != nil { // here, so that netfilter stays as it is, too
		return err
	}
	if x.held = x.Hold(x.of.Manifest, c.Program); len(x.Content) == 0 {
		return nil
	}
	c = c.with(x.Applied(c.Program))
	if err := x.netfilter(ctx, l, c); err != nil {
		return err
	}
	m := *x.of.Manifest
	m.Live, m.Sets = x.Next, slices.Clone(m.Sets)
	for i := range m.Sets {
		if l := m.LiveOf(m.Sets[i].Name); l != nil {
			m.Sets[i].Entries = l.Entries
		}
	}
	var source []byte
	if m.Source, source, err = sourceOf(c, c.found); err != nil {
		return err
	}
	if x.of.Program != nil {
		return l.renew(x.of, c, &m, map[datapath.Note][]byte{datapath.NoteSource: source})
	}
	return errors.Join(l.State.SetNote(x.of.Number, datapath.NoteSource, source), l.rewrite(x.of, &m))
}

// netfilter exchanges the elements of the sets that rules in netfilter ask.
func (x *exchange) netfilter(ctx context.Context, l *live, c *Compiled) error {
	for _, p := range x.of.Manifest.Rulesets {
		all := p.LiveElements(c.Program)
		elements := map[string][]netfilter.Element{}
		for set := range x.Content {
			names := p.Live[set]
			for _, name := range names.Names() {
				elements[name] = all[name]
			}
		}
		if len(elements) == 0 {
			continue
		}
		t, err := l.Tool(ctx, p.Kind)
		if err == nil {
			err = t.Exchange(ctx, p, elements)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// renew replaces the program of a generation by one made from c and the temporary rules of m, with all that the old one has collected.
func (l *live) renew(g *generation.Generation, c *Compiled, m *manifest.Manifest, notes map[datapath.Note][]byte) error {
	forTarget, _ := plan.For(c.Program, m.Target)
	program, numbers := m.Plan(forTarget).Only()
	o := xdpgen.Options{QuestionKey: m.Key, Slots: make([]uint32, len(numbers)), Protect: c.found}
	for i, rule := range numbers {
		o.Slots[i] = m.Rules[rule].Slot
	}
	for _, g := range m.Guards {
		o.GuardSlots = append(o.GuardSlots, g.Slot)
	}
	known, err := manifestsIn(l.State)
	if err != nil {
		return err
	}
	program, slots, fresh, err := withTemporary(c, program, m, o.Slots, known)
	if err != nil {
		return err
	}
	o.Slots = slots
	generated, err := xdpgen.Generate(program, o)
	if err != nil {
		return inFile(m.File, err)
	}
	if generated.Egress && features.Egress() != nil {
		generated.Egress = false // as when it was applied
	}
	if keys := m.LimitKeys; keys != nil {
		generated.Constants["limit_keys"], generated.Constants["limit_mix"] = keys.Sums, keys.Mix
	}
	if err := l.clear(fresh); err != nil {
		return err
	}
	m.Form = generated.Form
	loaded, err := g.Program.LoadRenewal(&generated.Image)
	if err != nil {
		return err
	}
	defer loaded.Close()
	// A program of an earlier version may have answered without it.
	if err := fillEnds(loaded, m.Devices); err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	err = l.State.Renew(g.Number, loaded, text, notes)
	if errors.Is(err, datapath.ErrNotSettled) {
		return ErrChanged
	}
	return err
}

// clear has counters begin at zero, if there are any of these slots.
func (l *live) clear(slots []uint32) error {
	if len(slots) == 0 {
		return nil
	}
	counters, err := l.State.Counters()
	if err != nil {
		return err
	}
	defer counters.Close()
	if last := slices.Max(slots); last >= counters.MaxEntries() {
		return fmt.Errorf("there is no counter %d for a temporary rule: apply the policy again", last)
	}
	return manifest.Zero(counters, slots)
}

// liveSets fixes the content of the live sets of a policy that is about to be applied.
func (in Instance) liveSets(c *Compiled, sessions []facts.Session) *Compiled {
	program, live := lists.Live(in.Feeds, c.Policy, c.Program, facts.Clients(sessions))
	if live == nil {
		return c
	}
	out := c.with(program)
	out.live = live
	return out
}

// listsWaitFor is the warning that lists that change need a daemon, "" if one runs or there are none.
func (in Instance) listsWaitFor(live []manifest.Live) string {
	if len(live) == 0 || in.hasDaemon() {
		return ""
	}
	return fmt.Sprintf("set %q stays as it is while `floodwall daemon` does not run: start it, or call `floodwall feeds refresh` now and then", live[0].Set)
}
