package nftables

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// taggedCounter is the counter of the table for tagged frames.
const taggedCounter = "check-vlan-depth"

// tagged is a table of family netdev, "" where none is needed: it drops IP behind more than one VLAN tag.
//
// The ingress hook of family inet sees a frame once, when the kernel has taken the first tag off, and lets by what is not
// IP then. Behind the hook the kernel takes off the other tags: those of VID 0 again and again, others for VLAN devices that
// stand on each other (net/core/dev.c, __netif_receive_skb_core). So a packet behind two tags would meet no rule at ingress.
// Family netdev sees the frame at the same place whatever its type is. Frames of other protocols pass, as everywhere.
func (n *generator) tagged() string {
	if !n.plan.Program.Checks.Has(packet.VLANDepth) || !n.plan.Stands(plan.StageIngress) {
		return ""
	}
	n.out.Checks[packet.VLANDepth] = taggedCounter
	var packets, octets uint64
	if n.options.Counts != nil {
		packets, octets = n.options.Counts(taggedCounter)
	}
	return fmt.Sprintf(`
# IP behind a second VLAN tag, which no chain of family inet sees at ingress
table netdev %s {
	counter %s { packets %d bytes %d }

	chain tagged {
		type filter hook ingress %s priority %s; policy accept;
		meta protocol { 0x8100, 0x88a8 } @nh,16,16 { 0x0800, 0x86dd, 0x8100, 0x88a8 } counter name "%[2]s" drop
	}
}
`, n.options.Table, taggedCounter, packets, octets, n.hookDevices(), priorityFirst)
}
