package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/ethtool"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

// tags warns when the policy asks for VLAN tags and a device takes them off before XDP sees the frame: the tag is then
// in the descriptor, and each frame looks as if it had none.
func (a *apply) tags(context.Context) error {
	if !slices.ContainsFunc(a.compiled.Program.Rules, testsVLAN) {
		return nil
	}
	for _, to := range a.attachments() {
		if stripsVLAN(to.Device) {
			a.notes = append(a.notes, fmt.Sprintf("device %s takes VLAN tags off before the policy, which asks for them, "+
				"can see them: `ethtool -K %s rxvlan off`", to.Device, to.Device))
		}
	}
	return nil
}

func testsVLAN(r ir.Rule) bool {
	return slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.VLAN })
}

// stripsVLAN asks a device whether its receive VLAN offload is on. One that cannot be asked has none.
func stripsVLAN(device string) bool {
	c, err := ethtool.Open()
	if err != nil {
		return false
	}
	defer c.Close()
	features, err := c.Features(device)
	return err == nil && features["rx-vlan-hw-parse"].On
}
