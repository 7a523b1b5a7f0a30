// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/internal/host/facts"
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
	daemon := t.in.HasDaemon()
	for _, d := range t.devices() {
		now, byFlood := mode, t.manifest.MovesByFlood(d)
		if byFlood && daemon && !t.runsIn(d, datapath.Generic) { // the daemon moves no device from generic mode
			now = datapath.Keep
		}
		to = append(to, datapath.Attachment{Device: d, Mode: cmp.Or(t.modes[d], now), Chosen: t.modes[d] != "", Spare: byFlood || t.mayLearn(d) || t.manifest.MayMute(d)})
	}
	return to
}

// mayLearn reports whether the program may move with floods once it is at XDP, because the driver then shows what XDP costs the device.
func (t *transaction) mayLearn(device string) bool {
	m := t.manifest
	return m.Home(device).Auto && (m.Mode == datapath.Keep || m.Mode == datapath.Auto) && !t.runsIn(device, datapath.Native)
}

// runsIn reports whether the program of the running policy runs in a mode on a device.
func (t *transaction) runsIn(device string, mode datapath.Mode) bool {
	device = cmp.Or(kernelName(device), device)
	return t.now != nil && t.now.Program != nil && slices.ContainsFunc(t.now.Program.Devices, func(d *datapath.Device) bool {
		return d.Name == device && d.Mode == mode
	})
}

// kernelName returns the kernel's name of a device that the policy names by an alternative name. It returns "" if both names are the same, or if there is
// no such device.
func kernelName(device string) string {
	if dev, err := netlink.LinkByName(device); err == nil && dev.Attrs().Name != device {
		return dev.Attrs().Name
	}
	return ""
}

// homes finds out when the program of each device runs at XDP. What the program costs a device is not asked again while it costs that.
func (t *transaction) homes() map[string]manifest.Home {
	homes := map[string]manifest.Home{}
	for _, d := range t.devices() {
		h := manifest.Home{XDP: t.compiled.Policy.XDPOf(d), Name: kernelName(d)}
		if h.When == policy.XDPAuto {
			h.Auto, h.When = true, policy.XDPAlways
			native := t.runsIn(d, datapath.Native)
			if native && t.now.Manifest.Home(d).Auto {
				h.Cost = t.now.Manifest.Home(d).Cost
			} else {
				h.Cost = facts.XDPCost(d, native)
			}
			if h.Cost != "" {
				h.When = policy.XDPFlooded
			}
		}
		homes[d] = h
	}
	return homes
}

// xdpIgnored returns notes on the keys xdp of a policy and of its devices that have no effect.
func xdpIgnored(m *manifest.Manifest, p *policy.Policy) (notes []string) {
	cause := ""
	switch {
	case m.Target != plan.TargetXDP:
		cause = fmt.Sprintf(" has no effect on target %s", m.Target)
	case m.Mode != datapath.Keep && m.Mode != datapath.Auto:
		cause = fmt.Sprintf(" has no effect, because mode %s was asked for; `--mode auto` ends that", m.Mode)
	default:
		return nil
	}
	note := func(of string, x *policy.XDP) {
		if x != nil && x.When != policy.XDPAuto && x.When != policy.XDPAlways {
			notes = append(notes, fmt.Sprintf("`xdp: %s`%s%s", x.When, of, cause))
		}
	}
	note("", p.XDP)
	for _, d := range p.Devices {
		note(" of device "+d.Name, d.XDP)
	}
	return notes
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
		m.Homes = t.homes()
		m.Tags = t.compiled.Program.AsksTags()
	}
	if d := t.compiled.Policy.Daemon; d != (policy.Daemon{}) {
		m.Daemon = &d
	}
	m.Openings = exposed.Openings(t.compiled.Policy)
	if t.move != nil {
		m.Daemon, m.Openings = t.now.Manifest.Daemon, t.now.Manifest.Openings
		m.Mode = t.now.Manifest.Mode
		if t.now.Manifest.Homes != nil {
			m.Homes = t.now.Manifest.Homes
		}
	}
	if g := t.now; g != nil {
		m.GoOnWith(g.Manifest, time.Now())
	}
	t.manifest = m
	if !t.options.Daemon {
		t.note(t.in.bansWaitFor(m))
		t.note(t.in.settingsWaitFor(m))
	}
	t.notes = append(t.notes, xdpIgnored(m, t.compiled.Policy)...)
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
