// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// AnswersLost is the start of the warning about a device that does not send the answers of XDP.
const AnswersLost = "what XDP answers is lost: "

// chooseModes finds the mode of each device for mode auto. For native mode, it checks that each device sends the answers of XDP.
func (t *transaction) chooseModes(context.Context) error {
	if t.target != plan.TargetXDP || t.move != nil {
		return nil
	}
	t.modes = map[string]datapath.Mode{}
	for _, d := range t.devices() {
		mode, cause := t.manifest.ModeFor(d)
		if mode == datapath.Native {
			cause = t.manifest.Mute(d)
		}
		var mute *datapath.NotSentError
		switch {
		case cause == nil:
		case mode == datapath.Native && errors.As(cause, &mute):
			t.note(fmt.Sprintf("%s%v, so these do not work there: %s; `--mode auto` runs it in %s mode", AnswersLost, mute, strings.Join(t.manifest.Answers(), ", "), datapath.Instead()))
		case mode == datapath.Native, mode == datapath.Auto:
			t.note(fmt.Sprintf("the answers of XDP may be lost on device %s: %v; `--mode tc` avoids that", d, cause))
		default:
			t.modes[d] = mode
			t.note(fmt.Sprintf("%v, so it runs in %s mode there", cause, mode))
		}
	}
	return nil
}

// NativeCost describes the cost of native mode on a virtual device, and the remedy. kind is the kind of the device (IFLA_INFO_KIND). NativeCost
// returns "" if native mode costs nothing.
//
// veth: if one end has a program, the other end makes no large segments (veth_fix_features in drivers/net/veth.c). The figures are medians of five
// rounds of one TCP connection on Linux 6.18, with the kernel's offloads: 13.0 Gb/s without a firewall, 11.5 with nftables, 10.9 in generic mode and
// 2.2 in native mode.
//
// bond: when a program replaces another one, the kernel does not release the old program (seen on Linux 6.12). The maps of a small policy take 37 MB.
func NativeCost(kind, device string) (cost, remedy string) {
	switch kind {
	case "veth":
		return fmt.Sprintf("XDP in native mode on veth %s costs about four fifths of what it receives in bulk", device),
			"`--mode tc` costs nothing of it, and with `floodwall daemon` the program is at XDP only in a flood (`xdp: auto`)"
	case "bond":
		return fmt.Sprintf("the kernel does not release an XDP program in native mode on bond %s when an apply replaces it: each takes about 40 MB, and more with long lists, until the next boot", device),
			"`--mode tc` and `--target nftables` avoid that"
	}
	return "", ""
}

// noteNativeCost adds a note on the cost of native mode on a device, if it has a cost.
func (t *transaction) noteNativeCost(device string) {
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return
	}
	if cost, remedy := NativeCost(dev.Type(), device); cost != "" && !(dev.Type() == "veth" && t.manifest.MovesByFlood(device) && (t.in.HasDaemon() || !t.manifest.Home(device).Auto)) {
		t.note(cost + "; " + remedy)
	}
}

// mute returns the devices in native mode that do not send the answers of a policy, each with the cause.
func mute(m *manifest.Manifest, devices []*datapath.Device) map[string]error {
	found := map[string]error{}
	for _, d := range devices {
		var mute *datapath.NotSentError
		if d.Mode == datapath.Native && errors.As(m.Mute(d.Name), &mute) {
			found[d.Name] = mute
		}
	}
	return found
}

// checkSending warns of devices that no longer send the answers of XDP because the other end of the device has changed.
func (s *Status) checkSending(m *manifest.Manifest, devices []*datapath.Device) {
	for _, err := range mute(m, devices) {
		remedy := fmt.Sprintf("`floodwall repair` runs it in %s mode there, and `floodwall daemon` does so by itself", datapath.Instead())
		if m.Mode == datapath.Native {
			remedy = fmt.Sprintf("`floodwall apply --mode auto` runs it in %s mode there", datapath.Instead())
		}
		s.warn("%s%v; %s", AnswersLost, err, remedy)
	}
}

// takesXDP reports whether a device may take native mode, and whether mode auto is native mode for it.
func takesXDP(m *manifest.Manifest, d *datapath.Device) bool {
	if !d.MayTakeNative() {
		return false
	}
	best, _ := m.ModeFor(d.Name)
	return best == datapath.Auto
}

// repairModes switches devices that do not send the answers of XDP to another mode, unless the operator asked for native mode. With mode auto, a
// device at tc gets native mode, if that has become possible: the program of another tool has gone, or the driver takes XDP now.
func (t *transaction) repairModes() error {
	g := t.now
	if g.Manifest.Mode == datapath.Native {
		return nil
	}
	causes, fresh := mute(g.Manifest, g.Program.Devices), false
	changed, err := t.state.LeaveNative(slices.Collect(maps.Keys(causes)), g.Number)
	note := func(d *datapath.Device, was datapath.Mode, cause string) {
		g.Moves.Note(d, "repaired")
		fresh = true
		t.repaired.Devices = append(t.repaired.Devices, RepairedDevice{Name: d.Name, Mode: string(d.Mode), Was: string(was), Note: cause})
	}
	for _, d := range changed {
		note(d, datapath.Native, causes[d.Name].Error())
	}
	var names []string
	for _, d := range g.Program.Devices {
		if d.Mode != datapath.TC {
			continue
		}
		if d.Beside() != "" {
			t.repaired.Beside = append(t.repaired.Beside, d.Name)
			continue
		}
		byFlood := g.Manifest.MovesByFlood(d.Name)
		// A flood of an earlier policy has ended there, and no flood brings it back: the trial of this policy kept the mode.
		m := g.Moves[d.Name]
		left := !byFlood && m.Mode == datapath.TC && m.Why == inCalm && m.Refused == ""
		if (left || t.at.Native(d.Name)) && !(byFlood && t.in.HasDaemon()) && takesXDP(g.Manifest, d) {
			names = append(names, d.Name)
		}
	}
	changed, refused, moveErr := t.state.TakeNative(names, g.Number)
	for _, d := range changed {
		note(d, datapath.TC, "the driver takes it now")
	}
	for _, r := range refused {
		fresh = g.Moves.NoteRefusal(r) || fresh
	}
	if fresh {
		err = errors.Join(err, g.Moves.Write(t.state, g.Number))
	}
	return errors.Join(err, moveErr)
}
