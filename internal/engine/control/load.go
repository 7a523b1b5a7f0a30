package control

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// loaded is a generation whose program is in the kernel, on no device, and whose rules for netfilter are ready.
type loaded struct {
	*planned
	manifest *manifest.Manifest // complete
	program  *datapath.Program  // nil without XDP
	xdp      *xdpgen.Program
	ruleset  *netfilter.Ruleset       // in netfilter; nil when there is nothing for it to do
	fresh    []uint32                 // counter slots of temporary rules that must begin at zero
	began    manifest.Seeds           // what its counters begin with
	kept     map[string][]ban.Blocked // entries of dynamic sets, by the set
	saved    map[string]bool          // sets of which kept comes from Instance.Bans
	bans     int
	notes    []string // beside those of planned
}

// load loads the program, with the maps that it takes over from the generation before, and compiles the rules for netfilter, with their
// counts so far. If it fails, nothing of it is left.
func (p *planned) load(ctx context.Context) (*loaded, error) {
	manifest := *p.manifest
	manifest.Guards, manifest.Limits = slices.Clone(manifest.Guards), slices.Clone(manifest.Limits)
	l := &loaded{planned: p, manifest: &manifest}
	steps := []func(context.Context) error{l.keepBans, l.netfilter}
	if p.target == plan.TargetXDP {
		steps = []func(context.Context) error{l.loadProgram, l.keepCounters, l.keepConnections, l.keepBans, l.fillDynamic, l.fillEnds, l.netfilter}
	}
	if err := inTurn(ctx, steps); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *loaded) close() {
	if l.program != nil {
		l.program.Close()
	}
}

// note adds a note, none when it is "".
func (l *loaded) note(text string) {
	if text != "" {
		l.notes = append(l.notes, text)
	}
}

// report is the result before the change: nothing that decides has changed yet.
func (l *loaded) report() *Applied {
	out := &Applied{
		Target: l.target, Choice: l.choice, Rules: len(l.compiled.Program.Rules), Stages: map[plan.Stage]int{}, Bans: l.bans,
		Notes: slices.Concat(l.compiled.NotesFor(l.target), l.planned.notes, l.notes),
	}
	if l.xdp != nil {
		out.Form = l.xdp.Form
	}
	for _, place := range l.stages.Rules {
		out.Stages[place.Stage]++
	}
	for _, s := range l.manifest.Sets {
		out.Entries += s.Entries
	}
	return out
}

// outgrown reports whether the map of counters has become too small.
func (l *loaded) outgrown() bool {
	return l.running.counters != nil && l.running.counters.MaxEntries() < max(l.slots.Size(), l.xdp.Slots)
}

// loadProgram compiles what is for XDP, and loads the program.
func (l *loaded) loadProgram(context.Context) (err error) {
	key, err := randomKey()
	if err != nil {
		return err
	}
	program, numbers := l.stages.Only()
	options := xdpgen.Options{QuestionKey: key, Slots: make([]uint32, len(numbers)), GuardSlots: l.slots.Guards, Protect: l.found}
	for i, rule := range numbers {
		options.Slots[i] = l.slots.Slots[rule]
	}
	program, options.Slots, l.fresh, err = withTemporary(l.compiled, program, l.manifest, options.Slots, l.running.manifests)
	if err != nil {
		return err
	}
	if l.xdp, err = xdpgen.Generate(program, options); err != nil {
		return inFile(l.compiled.Policy.File, err)
	}
	if l.xdp.Egress {
		l.mayEgress()
	}
	from := l.running.inherits
	if !l.outgrown() {
		from.Counters = l.running.counters
	}
	if l.program, err = datapath.LoadAfter(&l.xdp.Image, from); err != nil {
		return &unavailableError{err}
	}
	l.manifest.Form, l.manifest.Key = l.xdp.Form, key
	if sums, ok := l.xdp.Constants["limit_keys"].([8]uint32); ok && len(l.manifest.Live) > 0 {
		mix, _ := l.xdp.Constants["limit_mix"].([2]uint64)
		l.manifest.LimitKeys = &manifest.LimitKeys{Sums: sums, Mix: mix}
	}
	return nil
}

// keepCounters copies the counts to a new map if the old one became too small, and sets the counters of new rules to zero: their slots may
// have counts of rules that were removed.
func (l *loaded) keepCounters(context.Context) error {
	counters := l.running.counters
	switch {
	case counters == nil:
		return nil // a new map of zeros
	case l.outgrown():
		counters = l.program.Map(image.Counters)
		if err := manifest.CarryCounters(l.running.counters, counters); err != nil {
			return err
		}
	}
	return errors.Join(l.slots.Zero(counters), manifest.Zero(counters, l.fresh))
}

// randomKey draws the key of questions, never 0.
func randomKey() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("drawing a key: %w", err)
	}
	return binary.NativeEndian.Uint64(b[:]) | 1, nil
}
