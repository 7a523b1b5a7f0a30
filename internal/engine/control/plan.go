// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/policy"
)

// permitted returns an error when this process lacks a capability that XDP needs. For the other targets the tools of netfilter check the
// capabilities.
func (t *transaction) permitted(context.Context) error {
	if t.target != plan.TargetXDP {
		return nil
	}
	return features.CheckRights("loading the XDP program", features.BPF, features.NetAdmin, features.Perfmon)
}

// devices returns the names of the devices to filter.
func (t *transaction) devices() []string {
	if t.options.Devices != nil {
		return t.options.Devices
	}
	return t.compiled.Devices()
}

// attachments returns the devices to attach to, each with its mode of XDP.
func (t *transaction) attachments() (to []datapath.Attachment) {
	mode := t.options.Mode
	if t.move != nil || mode == datapath.Auto && t.trial > 0 { // the end of a trial does not bring back the mode
		mode = datapath.Keep
	}
	byFlood := t.manifest.MovesByFlood()
	kept := byFlood && t.in.HasDaemon()
	for _, d := range t.devices() {
		now := mode
		if kept && !t.isGeneric(d) { // the daemon moves no device from generic mode
			now = datapath.Keep
		}
		to = append(to, datapath.Attachment{Device: d, Mode: cmp.Or(t.modes[d], now), Chosen: t.modes[d] != "", Spare: byFlood || t.manifest.MayMute(d)})
	}
	return to
}

// isGeneric reports whether the program runs in generic mode on a device.
func (t *transaction) isGeneric(device string) bool {
	return t.now != nil && t.now.Program != nil && slices.ContainsFunc(t.now.Program.Devices, func(d *datapath.Device) bool {
		return d.Name == device && d.Mode == datapath.Generic
	})
}

// xdpIgnored returns a note if the key xdp of a policy has no effect. It returns "" otherwise.
func xdpIgnored(m *manifest.Manifest, x *policy.XDP) string {
	switch {
	case x == nil || x.When == policy.XDPAlways:
		return ""
	case m.Target != plan.TargetXDP:
		return fmt.Sprintf("`xdp: %s` has no effect on target %s", x.When, m.Target)
	case m.Mode != datapath.Keep && m.Mode != datapath.Auto:
		return fmt.Sprintf("`xdp: %s` has no effect, because mode %s was asked for; `--mode auto` ends that", x.When, m.Mode)
	}
	return ""
}

// devicesExist returns an error if a device does not exist or does not support XDP. A dry run can make this check.
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

// protect decides how connections to protected services are answered.
func (t *transaction) protect(context.Context) error {
	withoutXDP := ""
	if t.target != plan.TargetXDP { // XDP is not available, and choice says why; if the operator named the target, choice is ""
		withoutXDP = t.choice
	}
	mode := t.options.Mode
	if t.move != nil {
		mode = t.now.Manifest.Mode
	}
	protected, err := manifest.Plan(t.compiled.Program, t.compiled.host, t.target, mode, withoutXDP)
	if err != nil {
		return err
	}
	t.compiled, t.found, t.notes = t.compiled.with(protected.Program), protected.Found, append(t.notes, protected.Notes...)
	return nil
}

// record assigns the counter slots, and makes the manifest.
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
	m.Origin = t.options.Origin
	if t.target == plan.TargetXDP {
		m.XDP = t.compiled.Policy.XDP
		m.Tags = t.compiled.Program.AsksTags()
	}
	if d := t.compiled.Policy.Daemon; d != (policy.Daemon{}) {
		m.Daemon = &d
	}
	m.Openings = exposed.Openings(t.compiled.Policy)
	if t.move != nil {
		m.Daemon, m.Openings = t.now.Manifest.Daemon, t.now.Manifest.Openings
		m.Mode, m.XDP = t.now.Manifest.Mode, t.now.Manifest.XDP
	}
	if g := t.now; g != nil {
		m.GoOnWith(g.Manifest, time.Now())
	}
	t.manifest = m
	t.note(t.in.bansWaitFor(m))
	t.note(t.in.settingsWaitFor(m))
	t.note(xdpIgnored(m, t.compiled.Policy.XDP))
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
