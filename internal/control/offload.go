package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/ethtool"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

// A driver with receive VLAN offload takes the outermost tag off each frame and hands it over beside the frame, where XDP does
// not see it: the frame looks as if it had none. The kernel gives it to the device of the VLAN all the same. So a rule that asks
// for tags misses it; of replies see untagged.go. netfilter sees the tag. The function by which XDP could ask
// for it (bpf_xdp_metadata_rx_vlan_tag, Linux 6.8) takes a program for one device alone, and most drivers lack it.

// TagsError says that XDP on a device would not see the VLAN tags that a policy depends on.
type TagsError struct{ Device, Why string }

func (e *TagsError) Error() string {
	return fmt.Sprintf("device %s takes VLAN tags off frames before XDP sees them, and %s", e.Device, e.Why)
}

// Hint is the remedy.
func (e *TagsError) Hint() string {
	return fmt.Sprintf("`ethtool -K %s rxvlan off` leaves them in the frame; it has to be said again at each boot, before the policy", e.Device)
}

// tags refuses XDP on devices that take off the tags that the policy depends on.
func (a *apply) tags(context.Context) error {
	a.manifest.Tags = asksTags(a.compiled.Program)
	for _, to := range a.attachments() {
		if datapath.Forgetful(to.Device) && to.Mode != datapath.Generic {
			a.notes = append(a.notes, forgets(to))
		}
		why := a.manifest.Tags
		switch offload := tagOffload(to.Device); {
		case why == "" || offload == none:
		case offload == byDriver:
			return &unavailableError{&TagsError{to.Device, why}} // netfilter can
		default:
			a.notes = append(a.notes, fmt.Sprintf("what reaches device %s from VLAN devices at its other end may have its tag beside the frame, and %s: "+
				"`ethtool -K DEVICE txvlan off` there leaves it in the frame", to.Device, why))
		}
	}
	return nil
}

// forgets says what becomes of XDP on a device whose driver does not keep to it.
func forgets(to datapath.Attachment) string {
	const what = "device %s: its driver, vmxnet3, ceases to run XDP when the device was down or its MTU has changed, "
	if to.Mode == datapath.Native {
		return fmt.Sprintf(what+"and then nothing is filtered: --mode auto or generic, or apply again after `floodwall unload`", to.Device)
	}
	return fmt.Sprintf(what+"so the mode is generic, which costs several times as much a packet", to.Device)
}

// checkTags warns when a device takes off tags now that the policy depends on: the offload was switched on again, or the driver was
// loaded again.
func (s *Status) checkTags(m *manifest) {
	if m.Tags == "" || m.Target != compile.TargetXDP {
		return
	}
	for _, d := range s.Devices {
		if d.Stage == compile.StageXDP && tagOffload(d.Name) == byDriver {
			e := &TagsError{d.Name, m.Tags}
			s.warn("%v: %s", e, e.Hint())
		}
	}
}

// asksTags says which rule of a program asks for VLAN tags, "" when none does.
func asksTags(p *ir.Program) string {
	for _, r := range p.Rules {
		if slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.VLAN }) {
			return fmt.Sprintf("rule %q asks for them", r.Name)
		}
	}
	return ""
}

// offload is how a device hands over the tags of the frames that it receives.
type offload int

const (
	none     offload = iota // in the frame
	byDriver                // beside it
	bySender                // beside it, where the sender put them there: what crosses a veth does not change
)

// tagOffload asks a device. One that cannot be asked has none.
func tagOffload(device string) offload {
	c, err := ethtool.Open()
	if err != nil {
		return none
	}
	defer c.Close()
	features, err := c.Features(device)
	if err != nil || !features["rx-vlan-hw-parse"].On {
		return none
	}
	if driver, err := c.Driver(device); err == nil && driver == "veth" {
		return bySender
	}
	return byDriver
}

// stripsVLAN reports whether tags of a device's frames may be beside the frame.
func stripsVLAN(device string) bool { return tagOffload(device) != none }
