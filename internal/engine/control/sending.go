package control

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// AnswersLost begins the warning about a device on which the answers of XDP are lost.
const AnswersLost = "what XDP answers is lost: "

// askSending asks each device whether it sends what the policy answers. One that does not gets generic mode, unless the operator wants another.
func (t *transaction) askSending(context.Context) error {
	if t.target != plan.TargetXDP || t.move != nil || t.manifest.Mode == datapath.Generic {
		return nil
	}
	t.modes = map[string]datapath.Mode{}
	for _, d := range t.devices() {
		err := t.manifest.Mute(d)
		var mute *datapath.NotSentError
		switch {
		case err == nil:
		case !errors.As(err, &mute):
			t.note(fmt.Sprintf("the answers of XDP may be lost on device %s: %v; `--mode generic` avoids that", d, err))
		case t.manifest.Mode == datapath.Native:
			t.note(fmt.Sprintf("%s%v, so these do not work there: %s; `--mode auto` runs it in generic mode", AnswersLost, mute, strings.Join(t.manifest.Answers(), ", ")))
		default:
			t.modes[d] = datapath.Generic
			t.note(fmt.Sprintf("%v, so it runs in generic mode there", mute))
		}
	}
	return nil
}

// nativeNote says what native mode costs on a device of software, "" where it costs nothing.
//
// On a veth with a program at one end the other end makes no large segments (veth_fix_features in drivers/net/veth.c). The figures are medians
// of five rounds of one TCP connection on Linux 6.18, with the kernel's offloads: 13.0 Gb/s without a firewall, 11.5 with nftables, 10.9 in
// generic and 2.2 in native mode.
//
// A bond does not release the program that another one takes the place of (seen on Linux 6.12). A small policy's maps take 37 MB.
func nativeNote(device string) string {
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return ""
	}
	switch dev.Type() {
	case "veth":
		return fmt.Sprintf("XDP in native mode on veth %s costs about four fifths of what it receives in bulk; `--mode generic` and `--target nftables` cost less than a fifth", device)
	case "bond":
		return fmt.Sprintf("the kernel does not release an XDP program in native mode on bond %s when an apply replaces it: each takes about 40 MB, and more with long lists, until the next boot; `--mode generic` and `--target nftables` avoid that", device)
	}
	return ""
}

// mute are the devices in native mode that do not send what a policy answers, with the cause.
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

// checkSending warns of devices on which the answers of XDP are lost since their other end has changed.
func (s *Status) checkSending(m *manifest.Manifest, devices []*datapath.Device) {
	for _, err := range mute(m, devices) {
		remedy := "`floodwall repair` runs it in generic mode there, and `floodwall daemon` does so by itself"
		if m.Mode == datapath.Native {
			remedy = "`floodwall apply --mode auto` runs it in generic mode there"
		}
		s.warn("%s%v; %s", AnswersLost, err, remedy)
	}
}

// repairModes runs the program in generic mode on devices on which answers are lost, unless the operator wants native mode.
func (t *transaction) repairModes() error {
	g := t.now
	if g.Manifest.Mode == datapath.Native {
		return nil
	}
	causes := mute(g.Manifest, g.Program.Devices)
	var names []string
	for name := range causes {
		names = append(names, name)
	}
	changed, err := t.state.ToGeneric(names, g.Number)
	for _, d := range changed {
		t.repaired.Devices = append(t.repaired.Devices, RepairedDevice{
			Name: d.Name, Mode: string(d.Mode), Was: string(datapath.Native), Note: causes[d.Name].Error(),
		})
	}
	return err
}
