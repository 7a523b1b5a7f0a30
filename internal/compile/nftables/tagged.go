// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// taggedCounter is the counter of the table for tagged frames.
const taggedCounter = "check-vlan-depth"

// tagged returns a table of family netdev that drops IP packets behind more than one VLAN tag. It returns "" if the table is not needed.
//
// The ingress hook of family inet sees a frame once, after the kernel has removed the first tag. It ignores the frame if it is not an IP packet then.
// After the hook, the kernel removes the other tags: any number of tags with VID 0, and further tags for stacked VLAN devices (net/core/dev.c,
// __netif_receive_skb_core). So no rule at ingress would see a packet behind two tags. Family netdev sees every frame at the same place, whatever its
// type is. Frames of other protocols pass, as everywhere.
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
