// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/policy"
)

// Answers returns the names of the rules and protected services of a policy that send answers from XDP.
func (m *Manifest) Answers() (names []string) {
	for _, r := range m.Rules {
		if slices.Contains(ir.Answering(), r.Verdict) && !r.Observe {
			names = append(names, r.Name)
		}
	}
	for _, e := range m.Protections {
		if !e.InKernel() {
			names = append(names, e.Service)
		}
	}
	return names
}

// Mute returns a *datapath.NotSentError if the policy sends answers from XDP and the device in native mode would not send them. It returns another
// error if it cannot find that out. It returns nil when there is no such device.
func (m *Manifest) Mute(device string) error {
	if len(m.Answers()) == 0 {
		return nil
	}
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return nil
	}
	return datapath.SendsBack(dev)
}

// MayMute reports whether the result of Mute for a device may change later, because it depends on the other end of the device.
func (m *Manifest) MayMute(device string) bool {
	dev, err := netlink.LinkByName(device)
	return err == nil && dev.Attrs().ParentDev == "" && len(m.Answers()) > 0
}

// ModeFor returns the mode for a device: the one that the user asked for, or a better one in place of auto. cause says why that is not auto. If the mode
// is auto, cause says why it is not known whether the device sends the policy's answers.
func (m *Manifest) ModeFor(device string) (mode datapath.Mode, cause error) {
	asked, instead := cmp.Or(m.Mode, datapath.Auto), datapath.Instead()
	if asked != datapath.Auto {
		return asked, nil
	}
	if m.Home(device).When == policy.XDPNever {
		return instead, errors.New("the policy says `xdp: never`")
	}
	if instead == datapath.TC { // there the tag is read beside the frame
		if m.Tags != "" && facts.TagOffload(device) == facts.TagsByDriver {
			return instead, fmt.Errorf("device %s takes VLAN tags off frames before XDP sees them, and %s", device, m.Tags)
		}
		if len(m.Answers()) > 0 {
			if err := facts.RepliesUntagged(device); err != nil {
				return instead, err
			}
		}
	}
	err := m.Mute(device)
	var mute *datapath.NotSentError
	if errors.As(err, &mute) {
		return instead, mute
	}
	return asked, err
}

// LostReplies returns a note if truncated responses of rules on a device may be lost because the device's driver runs XDP. Some drivers remove the
// VLAN tag (facts.RepliesUntagged).
func (m *Manifest) LostReplies(device string) (notes []string) {
	truncates := slices.ContainsFunc(m.Rules, func(r Rule) bool { return slices.Contains(ir.Answering(), r.Verdict) && !r.Observe })
	if truncates {
		if err := facts.RepliesUntagged(device); err != nil {
			notes = append(notes, "truncated responses to clients in the VLAN are lost: "+err.Error())
		}
	}
	return notes
}
