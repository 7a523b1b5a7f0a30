package experiment

import (
	"context"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// floodPackets are more than make a flood at a service of rig.UDPServices, and use up what is for all.
const floodPackets = 200

// udpTable has packets to a protected UDP service during a flood.
func udpTable(u rig.UDPService) *table {
	kinds := []packetKind{
		{"known", "of a known client", u.Known(), 0},
		{"refused", "of a flood, refused", u.Refused(), 0},
		{"begins", "of one who begins, refused", u.Beginning(), 0},
	}
	if u.Has != "" {
		kinds = append(kinds, packetKind{"proved", "with an identifier, from another address", u.Proved(), 0})
	}
	column := &column{name: "udp=" + u.Protocol, head: "protect: " + u.Protocol, text: u.Policy()}
	column.prepare = func(_ context.Context, at *rig.Site, _ control.Instance, _ *ebpf.Program) error {
		return rig.BothSides(at.In.Name, func(xdp, egress *ebpf.Program) error {
			if err := u.Meet(xdp, egress); err != nil {
				return err
			}
			return u.Flood(xdp, floodPackets)
		})
	}
	return newTable("program: nanoseconds a packet to a UDP service in a flood, "+u.Protocol, kinds, column)
}
