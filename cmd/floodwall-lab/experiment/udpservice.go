package experiment

import (
	"context"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// floodPackets is more than the number of packets that a service of rig.UDPServices gets without a flood. This number exhausts the limit for all
// clients together.
const floodPackets = 200

// udpTable returns packets to a protected UDP service during a flood.
func (p *programs) udpTable(u rig.UDPService) *rig.Table {
	kinds := []packetKind{
		{"known", "of a known client", u.Known(), 0},
		{"refused", "of a flood, refused", u.Refused(), 0},
		{"begins", "of one who begins, refused", u.Beginning(), 0},
	}
	if u.Has != "" {
		kinds = append(kinds, packetKind{"proved", "with an identifier, from another address", u.Proved(), 0})
	}
	c := column{name: "udp=" + u.Protocol, head: "protect: " + u.Protocol, text: u.Policy()}
	c.prepare = func(_ context.Context, at *rig.Site, _ control.Instance, _ *ebpf.Program) error {
		return rig.BothSides(at.In.Name, func(xdp, egress *ebpf.Program) error {
			if err := u.Meet(xdp, egress); err != nil {
				return err
			}
			return u.Flood(xdp, floodPackets)
		})
	}
	return p.table("program: nanoseconds a packet to a UDP service in a flood, "+u.Protocol, kinds, c)
}
