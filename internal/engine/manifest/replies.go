package manifest

import (
	"cmp"
	"errors"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Answers names what of a policy answers packets from XDP: its rules and its protected services.
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

// Mute returns a *datapath.NotSentError when the policy answers packets from XDP, and the device would not send the answers in native mode.
// Another error says that it cannot be told. A device that there is not is none of either.
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

// MayMute reports whether Mute may have another answer later for a device: whether others at its other end decide that.
func (m *Manifest) MayMute(device string) bool {
	dev, err := netlink.LinkByName(device)
	return err == nil && dev.Attrs().ParentDev == "" && len(m.Answers()) > 0
}

// ModeFor is the mode of XDP for a device that runs no program of the policy. The cause is why it is not the one that was asked for, nil where
// it is that one.
func (m *Manifest) ModeFor(device string) (mode datapath.Mode, cause error) {
	asked := cmp.Or(m.Mode, datapath.Auto)
	if asked != datapath.Auto {
		return asked, nil
	}
	var mute *datapath.NotSentError
	if errors.As(m.Mute(device), &mute) {
		return datapath.Generic, mute
	}
	return asked, nil
}

// LostReplies says whether truncated responses that rules send on a device may not arrive, where its driver runs XDP: some drivers lose the
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
