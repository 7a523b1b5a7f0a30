// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// A driver with receive VLAN offload removes the outermost tag from each frame and passes it in metadata. XDP does not see the metadata, so the frame
// looks untagged, but the kernel still passes it to the VLAN device. So a rule with `vlan` does not match the frame. For the effect on replies see
// internal/host/facts/untagged.go. Netfilter sees the tag. A kfunc lets XDP read it (bpf_xdp_metadata_rx_vlan_tag, Linux 6.8), but the kfunc needs a
// program that is bound to one device, and most drivers lack it.

// untagged returns the error that XDP on a device would not see the VLAN tags that a policy needs. why names the part of the policy that needs them.
func untagged(device, why string) *wording.HintError {
	return wording.Hinted(fmt.Sprintf("device %s takes VLAN tags off frames before XDP sees them, and %s", device, why),
		fmt.Sprintf("`ethtool -K %s rxvlan off` leaves them in the frame; it has to be said again at each boot, before the policy", device))
}

// tags returns an error for XDP on a device whose driver removes the tags that the policy needs.
func (t *transaction) tags(context.Context) error {
	if t.target != plan.TargetXDP {
		return nil
	}
	if t.move != nil { // the policy already runs there
		return nil
	}
	for _, to := range t.attachments() {
		if to.Mode == datapath.Generic || to.Mode == datapath.TC { // there the tag is read beside the frame
			continue
		}
		if datapath.Forgetful(to.Device) {
			t.note(to.Forgets())
		}
		why := t.manifest.Tags
		switch offload := facts.TagOffload(to.Device); {
		case why == "" || offload == facts.TagsInFrame:
		case offload == facts.TagsByDriver:
			return &unavailableError{untagged(to.Device, why)} // netfilter sees the tags
		default:
			t.note(fmt.Sprintf("what reaches device %s from VLAN devices at its other end may have its tag beside the frame, and %s: "+
				"`ethtool -K DEVICE txvlan off` there leaves it in the frame", to.Device, why))
		}
	}
	return nil
}

// checkTags warns if a driver now removes tags that the policy needs: the offload was switched on again, or the driver was reloaded.
func (s *Status) checkTags(m *manifest.Manifest) {
	if m.Tags == "" || m.Target != plan.TargetXDP {
		return
	}
	for _, d := range s.Devices {
		if d.Stage == plan.StageXDP && facts.TagOffload(d.Name) == facts.TagsByDriver {
			e := untagged(d.Name, m.Tags)
			s.warn("%v: %s", e, e.Hint())
		}
	}
}
