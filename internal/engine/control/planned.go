package control

import (
	"context"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/policy"
)

// planned is a generation that is completely decided, of which nothing is in the kernel.
type planned struct {
	request                     // its compiled is the policy as the target has it
	running  *running           // that it follows
	found    []ir.Handshake     // how protected services are answered for
	slots    manifest.SlotPlan  // of the counters in XDP
	manifest *manifest.Manifest // but for what only loading tells
	source   []byte             // to keep with the generation; nil is nothing
	notes    []string
}

// plan decides all of the generation for a request.
func (r request) plan(ctx context.Context, now *running) (*planned, error) {
	p := &planned{request: r, running: now}
	if now.foreign != nil {
		p.note(now.foreign.Error() + ": counts begin anew")
	}
	return p, inTurn(ctx, []func(context.Context) error{p.protect, p.place, p.record, p.tags})
}

// protect decides how protected services are answered for.
func (p *planned) protect(context.Context) error {
	withoutXDP := ""
	if strings.HasPrefix(p.choice, notTarget) { // for want of a better
		withoutXDP = p.choice
	}
	protected, err := manifest.Plan(p.compiled.Program, p.compiled.host, p.target, p.options.Mode, withoutXDP)
	if err != nil {
		return err
	}
	p.compiled, p.found, p.notes = p.compiled.with(protected.Program), protected.Found, append(p.notes, protected.Notes...)
	return nil
}

// record plans the counters, and writes the manifest.
func (p *planned) record(context.Context) error {
	p.slots = manifest.PlanSlots(p.compiled.Program, p.running.manifests)
	for i := range p.found {
		p.found[i].Slots = p.slots.Outcomes[i]
	}
	m := manifest.New(p.compiled.Policy.File, p.compiled.Program, p.stages, p.slots)
	m.Live = p.compiled.live
	m.NoteOperators(p.options.Sessions)
	m.AddProtections(p.compiled.Program, p.found)
	m.NoteRouted(p.compiled.Program)
	m.Choice, m.Devices, m.Boot, m.Mode = p.choice, p.devices(), p.options.Boot, p.options.Mode
	if d := p.compiled.Policy.Daemon; d != (policy.Daemon{}) {
		m.Daemon = &d
	}
	if p.move != nil {
		m.Daemon = p.running.generation.Manifest.Daemon
		m.Mode = p.running.generation.Manifest.Mode
	}
	if g := p.running.generation; g != nil {
		m.GoOnWith(g.Manifest, time.Now())
	}
	p.manifest = m
	p.note(p.in.bansWaitFor(m))
	p.note(p.in.settingsWaitFor(m))
	p.notes = append(p.notes, portsOf(m)...)
	p.warnStrict()
	return p.remember()
}

// note adds a note, none when it is "".
func (p *planned) note(text string) {
	if text != "" {
		p.notes = append(p.notes, text)
	}
}

// programs reports whether XDP has a part in the change.
func (p *planned) programs() bool { return p.target == plan.TargetXDP || p.running.program() }
