// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/image"
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

// Live lists the live sets of the running policy. It returns nil when no policy runs.
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

// SyncLists replaces the content of the policy's live sets by their last good copies and the present databases. Nothing else of the policy changes:
// limits, connections, bans and counters are kept. If `all` is true, SyncLists reads every set, else only sets whose copy or database has changed. It
// returns the changed sets. It returns ErrChanged if another policy runs by now, or if one is on trial. A set keeps its content if it cannot be read
// or is held (lists.HeldError). The error names such sets; the other sets are changed.
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
	var held error // names the sets that keep their content
	if len(next.Content) > 0 {
		err = in.change(ctx, func(t *transaction) error {
			t.of, t.lists = g, next
			err := t.exchange(context.WithoutCancel(ctx))
			held = t.held
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(err, errRead)
	}
	return next.Done, errors.Join(errRead, held)
}

// readCompiled reads the source from which the running policy was compiled. If another version loaded the program, readCompiled returns an error, so
// that netfilter also stays unchanged.
func (t *transaction) readCompiled(context.Context) (err error) {
	t.compiled, err = readSource(t.state, t.now)
	if err == nil && t.compiled == nil {
		err = errors.New("what the policy was compiled from is not kept: apply it again")
	}
	if err == nil {
		err = t.now.Foreign()
	}
	return err
}

// changeLists makes the new manifest and the new program. Sets that are held keep their content.
func (t *transaction) changeLists(context.Context) (err error) {
	m := *t.now.Manifest
	t.manifest = &m
	if t.held = t.lists.Hold(&m, t.compiled.Program); len(t.lists.Content) == 0 {
		return nil
	}
	t.was, t.compiled = t.compiled, t.compiled.with(t.lists.Applied(t.compiled.Program))
	m.Live, m.Sets = t.lists.Next, slices.Clone(m.Sets)
	for i := range m.Sets {
		if l := m.LiveOf(m.Sets[i].Name); l != nil {
			m.Sets[i].Entries = l.Entries
		}
	}
	m.Source, t.content, err = sourceOf(t.compiled, t.compiled.found)
	return err
}

// exchangeSets replaces the elements of the live sets in netfilter.
func (t *transaction) exchangeSets(ctx context.Context) error {
	return t.onRulesets(ctx, t.now.Manifest.Rulesets, func(tool netfilter.Tool, p *netfilter.Ruleset) error {
		t.entered = append(t.entered, p) // iptables changes one set after the other
		return t.exchangeIn(ctx, tool, p, t.compiled)
	})
}

// exchangeBack restores the old elements of the changed sets.
func (t *transaction) exchangeBack(ctx context.Context) error {
	return t.onRulesets(ctx, t.entered, func(tool netfilter.Tool, p *netfilter.Ruleset) error { return t.exchangeIn(ctx, tool, p, t.was) })
}

// exchangeIn sets the elements of the changed sets in a ruleset to their elements in the policy c. It does nothing if the ruleset has none of these
// sets.
func (t *transaction) exchangeIn(ctx context.Context, tool netfilter.Tool, p *netfilter.Ruleset, c *Compiled) error {
	all := p.LiveElements(c.Program)
	elements := map[string][]netfilter.Element{}
	for set := range t.lists.Content {
		names := p.Live[set]
		for _, name := range names.Names() {
			elements[name] = all[name]
		}
	}
	if len(elements) == 0 {
		return nil
	}
	return tool.Exchange(ctx, p, elements)
}

// keepLists stores the new lists with the generation, if it has no XDP program. For a generation with a program, renew stores them.
func (t *transaction) keepLists(context.Context) (err error) {
	if t.now.Program != nil || len(t.lists.Content) == 0 {
		return nil
	}
	if t.source, err = t.state.Note(t.now.Number, datapath.NoteSource); err != nil {
		return err
	}
	return t.state.SetNote(t.now.Number, datapath.NoteSource, t.content)
}

// keepOldLists undoes keepLists.
func (t *transaction) keepOldLists(context.Context) error {
	if t.source == nil {
		return nil
	}
	return t.state.SetNote(t.now.Number, datapath.NoteSource, t.source)
}

// putLists puts the new lists into the program, and their new state into the manifest.
func (t *transaction) putLists(context.Context) error {
	switch {
	case len(t.lists.Content) == 0:
		return nil
	case t.now.Program != nil:
		return t.renew(t.now, t.compiled, t.manifest, map[datapath.Note][]byte{datapath.NoteSource: t.content})
	}
	return t.rewrite(t.now, t.manifest)
}

// renew replaces the program of a generation by a new one. The new program is compiled from c and the temporary rules of m. It keeps all state of the
// old program.
func (t *transaction) renew(g *generation.Generation, c *Compiled, m *manifest.Manifest, notes map[datapath.Note][]byte) error {
	forTarget, _ := plan.For(c.Program, m.Target)
	program, numbers := m.Plan(forTarget).Only()
	o := xdpgen.Options{QuestionKey: m.Key, Slots: make([]uint32, len(numbers)), Protect: c.found}
	for i, rule := range numbers {
		o.Slots[i] = image.SlotWaiting
		if rule != plan.Waits {
			o.Slots[i] = m.Rules[rule].Slot
		}
	}
	for _, g := range m.Guards {
		o.GuardSlots = append(o.GuardSlots, g.Slot)
	}
	known, err := manifestsIn(t.state)
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
		generated.Egress = false // the apply has set this value, too
	}
	if keys := m.LimitKeys; keys != nil {
		generated.UseLimitKeys(keys.Sums, keys.Mix)
	}
	if err := t.clear(fresh); err != nil {
		return err
	}
	m.Form = generated.Form
	loaded, err := g.Program.LoadRenewal(&generated.Image)
	if err != nil {
		return err
	}
	defer loaded.Close()
	// A program of an earlier version may have sent answers without this data.
	if err := fillEnds(loaded, m.Devices); err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	err = t.state.Renew(g.Number, loaded, text, notes)
	if errors.Is(err, datapath.ErrNotSettled) {
		return ErrChanged
	}
	return err
}

// clear sets the counters in the given slots to zero.
func (t *transaction) clear(slots []uint32) error {
	if len(slots) == 0 {
		return nil
	}
	counters, err := t.state.Counters()
	if err != nil {
		return err
	}
	defer counters.Close()
	if last := slices.Max(slots); last >= counters.MaxEntries() {
		return fmt.Errorf("there is no counter %d for a temporary rule: apply the policy again", last)
	}
	return manifest.Zero(counters, slots)
}

// liveSets determines the contents of the live sets of a policy that is about to be applied.
func (in Instance) liveSets(c *Compiled, sessions []facts.Session) *Compiled {
	program, live := lists.Live(in.Feeds, c.Policy, c.Program, facts.Clients(sessions))
	if live == nil {
		return c
	}
	out := c.with(program)
	out.live = live
	return out
}

// listsWaitFor returns the warning that updates of lists need a daemon. It returns "" if a daemon runs or there are no live sets.
func (in Instance) listsWaitFor(live []manifest.Live) string {
	if len(live) == 0 || in.HasDaemon() {
		return ""
	}
	return fmt.Sprintf("set %q stays as it is"+WithoutDaemon+": start it, or call `floodwall feeds refresh` now and then", live[0].Set)
}
