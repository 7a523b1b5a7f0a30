package manifest

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// LostReplies says whether the replies that rules and protections send on a device may not arrive, where its driver runs XDP. Some
// drivers lose the VLAN tag (facts.RepliesUntagged). The other end of a veth takes what is sent with XDP_TX, and without a
// program of its own does not wake its reader:
// https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c, veth_xdp_flush.
func (m *Manifest) LostReplies(device string) (notes []string) {
	replies := func(r Rule) bool { return slices.Contains(ir.Answering(), r.Verdict) && !r.Observe }
	answers := func(e Protection) bool { return !e.InKernel() }
	truncates := slices.ContainsFunc(m.Rules, replies)
	if !truncates && !slices.ContainsFunc(m.Protections, answers) {
		return nil
	}
	link, err := netlink.LinkByName(device)
	if err == nil && link.Type() == "veth" {
		notes = append(notes, fmt.Sprintf("replies from XDP reach the other end of veth %s only if that has an XDP program too; "+
			"`--mode generic` avoids it", device))
	}
	if truncates {
		if err := facts.RepliesUntagged(device); err != nil {
			notes = append(notes, "truncated responses to clients in the VLAN are lost: "+err.Error())
		}
	}
	return notes
}
