package control

import (
	"cmp"
	"context"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/policy"
)

// permitted returns a *rights.Error when this process may not load what the target takes. Tools of netfilter check by themselves.
func (t *transaction) permitted(context.Context) error {
	if t.target != plan.TargetXDP {
		return nil
	}
	return features.CheckRights("loading the XDP program", features.BPF, features.NetAdmin, features.Perfmon)
}

// devices are the names of the devices to filter.
func (t *transaction) devices() []string {
	if t.options.Devices != nil {
		return t.options.Devices
	}
	return t.compiled.Devices()
}

// attachments are the devices, each with the mode of XDP.
func (t *transaction) attachments() (to []datapath.Attachment) {
	mode := t.options.Mode
	if mode == "" {
		mode = datapath.Auto
	}
	for _, d := range t.devices() {
		to = append(to, datapath.Attachment{Device: d, Mode: cmp.Or(t.modes[d], mode), Spare: t.manifest.MayMute(d)})
	}
	return to
}

// devicesExist is what a dry run can say about the devices.
func (t *transaction) devicesExist() error {
	there := datapath.DeviceExists
	if t.target == plan.TargetXDP {
		there = datapath.Attachable
	}
	for _, d := range t.devices() {
		if err := there(d); err != nil {
			return err
		}
	}
	return nil
}

// protect decides how protected services are answered for.
func (t *transaction) protect(context.Context) error {
	withoutXDP := ""
	if t.target != plan.TargetXDP { // for want of it, unless the operator has asked for the target: then there is no choice
		withoutXDP = t.choice
	}
	protected, err := manifest.Plan(t.compiled.Program, t.compiled.host, t.target, t.options.Mode, withoutXDP)
	if err != nil {
		return err
	}
	t.compiled, t.found, t.notes = t.compiled.with(protected.Program), protected.Found, append(t.notes, protected.Notes...)
	return nil
}

// record plans the counters, and writes the manifest.
func (t *transaction) record(ctx context.Context) error {
	t.slots = manifest.PlanSlots(t.compiled.Program, t.manifests)
	for i := range t.found {
		t.found[i].Slots = t.slots.Outcomes[i]
	}
	m := manifest.New(t.compiled.Policy.File, t.compiled.Program, t.stages, t.slots)
	m.Live = t.compiled.live
	m.NoteOperators(t.options.Sessions)
	m.AddProtections(t.compiled.Program, t.found)
	m.NoteRouted(t.compiled.Program)
	m.Choice, m.Devices, m.Boot, m.Mode = t.choice, t.devices(), t.options.Boot, t.options.Mode
	if d := t.compiled.Policy.Daemon; d != (policy.Daemon{}) {
		m.Daemon = &d
	}
	if t.move != nil {
		m.Daemon = t.now.Manifest.Daemon
		m.Mode = t.now.Manifest.Mode
	}
	if g := t.now; g != nil {
		m.GoOnWith(g.Manifest, time.Now())
	}
	t.manifest = m
	t.note(t.in.bansWaitFor(m))
	t.note(t.in.settingsWaitFor(m))
	t.notes = append(t.notes, portsOf(m)...)
	t.notes = append(t.notes, plan.LateNotes(t.stages)...)
	t.notes = append(t.notes, bridgedNotes(m)...)
	t.notes = append(t.notes, offloadNotes(ctx, m)...)
	t.notes = append(t.notes, SenderNotes(t.compiled.Policy, t.compiled.Program)...)
	t.notes = append(t.notes, HostNotes(t.compiled.Program, t.devices(), t.target)...)
	t.notes = append(t.notes, t.laterNotes()...)
	t.warnStrict()
	if t.move == nil {
		t.warnSaved()
	}
	return t.remember()
}
