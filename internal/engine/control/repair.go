// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Repaired lists the parts of the policy that a repair has restored in the kernel.
type Repaired struct {
	Devices  []RepairedDevice  `json:"devices"`
	Rulesets []RepairedRuleset `json:"netfilter"`
	Local    int               `json:"local,omitempty"`   // number of own addresses of the host that were added to the program's set or removed from it
	Waiting  []string          `json:"waiting,omitempty"` // devices that do not exist
	Renamed  []string          `json:"renamed,omitempty"` // devices that were renamed, by their name in the policy: see RenamedText
	Removed  []string          `json:"removed,omitempty"` // rulesets that belonged to no policy in force
	Beside   []string          `json:"beside,omitempty"`  // devices at tc on which an XDP program of another tool runs
	Ordered  []string          `json:"ordered,omitempty"` // texts on programs of other tools that were in the place of Floodwall's at tc
	Missed   []string          `json:"missed,omitempty"`  // texts on rules that do not filter ports of a bridge, with the remedy
}

// RepairedDevice is a device to which the repair has attached the program of the policy again.
type RepairedDevice struct {
	Name string `json:"name"`
	Mode string `json:"mode"`
	Of   string `json:"of,omitempty"`   // the traffic that was not filtered, such as "what device eth0 sends"; "": all packets that the device receives
	Was  string `json:"was,omitempty"`  // the previous mode, if only the mode has changed
	Note string `json:"note,omitempty"` // why the mode has changed
}

// RepairedRuleset is a table of nftables, or a set of chains of iptables, that the repair has completed.
type RepairedRuleset struct {
	Name  string `json:"name"`
	Cause string `json:"cause"` // the missing parts
}

// Any reports whether the repair has restored a part.
func (r *Repaired) Any() bool {
	return len(r.Devices)+len(r.Rulesets)+len(r.Removed)+len(r.Ordered) > 0
}

// String describes the restored parts.
func (r *Repaired) String() string {
	var texts []string
	for _, d := range r.Devices {
		text := fmt.Sprintf("device %s is filtered again (%s)", d.Name, d.Mode)
		switch {
		case d.Of != "":
			text = d.Of + " is filtered again"
		case d.Was != "":
			text = fmt.Sprintf("device %s runs in %s mode, no more in %s mode", d.Name, d.Mode, d.Was)
		}
		if d.Note != "" {
			text += ": " + d.Note
		}
		texts = append(texts, text)
	}
	if r.Local > 0 {
		texts = append(texts, wording.Things(r.Local, "address of this host has", "addresses of this host have")+" come or gone")
	}
	for _, p := range r.Rulesets {
		texts = append(texts, fmt.Sprintf("%s is whole again in netfilter, where this had changed: %s", p.Name, p.Cause))
	}
	for _, name := range r.Removed {
		texts = append(texts, name+" removed from netfilter: no policy in force has it")
	}
	return strings.Join(append(texts, r.Ordered...), "; ")
}

// scope says which parts a repair checks: the programs of devices, the rulesets of netfilter, or both.
type scope struct {
	devices, rulesets bool
	Choices
}

// Choices are the decisions that the caller of a repair makes.
type Choices struct {
	// Native selects the devices at tc that get native mode if their driver takes it now. To find that out, the program is attached, and some drivers
	// write to the kernel's log when they refuse it.
	Native func(device string) bool
	// Reorder selects the devices on which Floodwall's program at tc gets its place before another tool's program again.
	Reorder func(datapath.Misplaced) bool
}

// Repair restores the missing parts of the policy in force in the kernel. These are programs of devices that returned or that another tool has
// detached, and rules of netfilter that other tools have removed or changed. All data that Repair needs is in the BPF file system. If a part cannot
// be restored, the error says so, and Repair still restores the other parts. It returns datapath.ErrNotLoaded when no policy is in force.
func (in Instance) Repair(ctx context.Context) (r *Repaired, err error) {
	return in.repair(ctx, scope{devices: true, rulesets: true, Choices: Choices{func(string) bool { return true }, func(datapath.Misplaced) bool { return true }}})
}

// RepairDevices is Repair for the programs of devices only.
func (in Instance) RepairDevices(ctx context.Context, c Choices) (*Repaired, error) {
	return in.repair(ctx, scope{devices: true, Choices: c})
}

// RepairNetfilter is Repair for netfilter only.
func (in Instance) RepairNetfilter(ctx context.Context) (*Repaired, error) {
	return in.repair(ctx, scope{rulesets: true})
}

// Owns reports whether a table of nftables belongs to the instance.
func (in Instance) Owns(table string) bool { return strings.HasPrefix(table, in.namePrefix()) }

func (in Instance) repair(ctx context.Context, at scope) (r *Repaired, err error) {
	err = in.locked(ctx, func(state *datapath.State) error {
		ctx := context.WithoutCancel(ctx)
		l, err := generation.OpenAny(ctx, state)
		if err != nil {
			return err
		}
		t := in.over(l)
		defer t.close()
		err = t.repair(ctx, at)
		r = t.repaired
		return err
	})
	return r, in.notLoaded(ctx, err)
}

// repairLocal updates the program's data about this host's addresses and devices.
func (t *transaction) repairLocal(context.Context) error {
	if !t.at.devices {
		return nil
	}
	added, removed, err := t.now.RefreshLocal()
	t.repaired.Local = added + removed
	return err
}

// repairDevices attaches the missing programs to the devices.
func (t *transaction) repairDevices(context.Context) error {
	g, r := t.now, t.repaired
	if !t.at.devices {
		return nil
	}
	r.Missed = portsOf(g.Manifest)
	if g.Program == nil {
		for _, name := range g.Manifest.Devices {
			if datapath.DeviceExists(name) != nil {
				r.Waiting = append(r.Waiting, name)
			}
		}
		return nil
	}
	lacks, err := t.state.Lacking(g.Manifest.Devices, g.Number)
	if err != nil {
		return err
	}
	r.Renamed = generation.Renamed(g.Manifest, lacks)
	var to []datapath.Attachment
	missing, causes := map[string][]string{}, map[string]error{} // by device: the unfiltered traffic; why its mode is not the requested one
	for _, lack := range lacks {
		if lack.Gone {
			r.Waiting = append(r.Waiting, lack.Device)
			continue
		}
		if missing[lack.Device] == nil {
			mode, cause := g.Manifest.ModeFor(lack.Device)
			to, causes[lack.Device] = append(to, datapath.Attachment{Device: lack.Device, Mode: mode}), cause
		}
		missing[lack.Device] = append(missing[lack.Device], lack.Of)
	}
	if to == nil {
		return errors.Join(t.repairModes(), t.repairOrder())
	}
	devices, err := t.state.Reattach(to, g.Number)
	for _, d := range devices {
		t.noteDevice(d, missing[d.Name], causes[d.Name])
	}
	return errors.Join(err, t.repairModes(), t.repairOrder(), knowReplies(g.Program.ReplyFlows))
}

// noteDevice records that the missing programs of a device are attached again. missing names the traffic of each program; "" stands for all packets
// that the device receives. cause says why the mode of the device is not the requested one; it is nil if the modes are equal.
func (t *transaction) noteDevice(d *datapath.Device, missing []string, cause error) {
	if missing == nil { // the policy names the device twice, the second time by another name
		missing = []string{""}
	}
	for _, of := range missing {
		note := ""
		switch {
		case of != "":
		case cause != nil:
			note = cause.Error()
		case d.Mode == datapath.Generic && !t.state.MadeForGeneric(t.now.Number):
			note = "its driver has no XDP, which it had, so the program runs at several times the cost"
		}
		t.repaired.Devices = append(t.repaired.Devices, RepairedDevice{Name: d.Name, Mode: string(d.Mode), Of: of, Note: note})
	}
}

// repairRulesets restores the rulesets in netfilter. It does not complete a change that died between its steps: that is the task of mend.
func (t *transaction) repairRulesets(ctx context.Context) error {
	if !t.at.rulesets || t.live.Trial != nil {
		return nil
	}
	var errs []error
	for _, p := range t.manifest.Rulesets {
		cause, err := t.restoreRuleset(ctx, p)
		if cause != "" && err == nil {
			t.repaired.Rulesets = append(t.repaired.Rulesets, RepairedRuleset{p.Name, cause})
		}
		errs = append(errs, err)
	}
	removed, err := t.in.removeHeld(ctx, owned(t.live, t.now)...)
	for _, h := range removed {
		t.repaired.Removed = append(t.repaired.Removed, h.String())
	}
	errs = append(errs, err)
	if len(t.repaired.Rulesets) > 0 { // connections that started meanwhile may be unknown to conntrack
		errs = append(errs, trackConnected(t.manifest))
	}
	return errors.Join(errs...)
}

// noteRepair records the restored parts.
func (t *transaction) noteRepair(context.Context) error {
	if !t.repaired.Any() {
		return nil
	}
	return generation.NoteRepair(t.state, t.now.Number, t.repaired.String())
}

// restoreRuleset restores a ruleset if the kernel lacks it or another tool has changed it. cause says what was wrong; it is "" if the ruleset is
// complete.
func (t *transaction) restoreRuleset(ctx context.Context, p *netfilter.Ruleset) (cause string, err error) {
	tool, err := t.live.Tool(ctx, p.Kind)
	if err != nil {
		return "", err
	}
	_, state, err := tool.Trial(ctx, p.Name)
	switch {
	case err != nil:
		return "", err
	case state == netfilter.Absent:
		cause = "it was removed"
	case state == netfilter.Settled, state == netfilter.Inert && p.Kind == netfilter.KindIptables:
		differs := tool.Verify(ctx, p)
		if differs == nil {
			return "", nil
		}
		first, more, _ := strings.Cut(differs.Error(), "\n")
		if cause = first; more != "" {
			cause += fmt.Sprintf(", and %d more", strings.Count(more, "\n")+1)
		}
	default:
		return "", nil
	}
	bans, err := t.live.BansFor(ctx, t.now, t.now)
	if err != nil {
		bans = map[string][]ban.Ban{} // the bans were lost with their sets
	}
	if t.in.Bans != nil {
		saved, _ := t.in.Bans.Load(ban.IsIn(t.manifest)) // if the file cannot be read, no bans are added
		ban.AddLost(t.manifest, bans, saved)
	}
	if err := t.refill(t.now, p, bans); err != nil {
		return "", err
	}
	return cause, tool.Restore(ctx, p)
}

// refill sets the initial content of a ruleset of an earlier generation: the given bans, and the last contents of its live sets.
func (t *transaction) refill(g *generation.Generation, p *netfilter.Ruleset, bans map[string][]ban.Ban) error {
	p.Fill = ban.Elements(p, bans)
	if len(p.Live) == 0 {
		return nil
	}
	c, err := readSource(t.state, g)
	if err == nil && c == nil {
		err = fmt.Errorf("generation %d: the lists of its sets are not kept: apply the policy again", g.Number)
	}
	if err == nil {
		p.FillLive(c.Program)
	}
	return err
}
