package control

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/hostfacts"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/manifest"
)

// lostReplies says of which devices the replies that rules and protections send may not arrive. Some lose the VLAN tag
// (hostfacts.RepliesUntagged). The other end of a veth takes what is sent with XDP_TX, and without a program of its own does not wake its
// reader:
// https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c, veth_xdp_flush.
func lostReplies(m *manifest.Manifest, devices []AppliedDevice) (notes []string) {
	replies := func(r manifest.Rule) bool { return r.Verdict == ir.Truncate.String() && !r.Observe }
	answers := func(e manifest.Protection) bool { return !e.InKernel() }
	truncates := slices.ContainsFunc(m.Rules, replies)
	if !truncates && !slices.ContainsFunc(m.Protections, answers) {
		return nil
	}
	for _, d := range devices {
		link, err := netlink.LinkByName(d.Name)
		if err == nil && link.Type() == "veth" && d.Mode == datapath.Native {
			notes = append(notes, fmt.Sprintf("replies from XDP reach the other end of veth %s only if that has an XDP program too; "+
				"`--mode generic` avoids it", d.Name))
		}
		if truncates && d.Mode == datapath.Native {
			if err := hostfacts.RepliesUntagged(d.Name); err != nil {
				notes = append(notes, "truncated responses to clients in the VLAN are lost: "+err.Error())
			}
		}
	}
	return notes
}
