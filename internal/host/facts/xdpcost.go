// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/kernel/features"
)

// joining are the features by which a driver, or the device itself, joins received segments. A driver switches them off while an XDP program is
// attached, or refuses the program. virtio_net shows rx-gro-hw also while it is off (virtnet_clear_guest_offloads in drivers/net/virtio_net.c).
var joining = []string{"rx-gro-hw", "rx-lro"}

// XDPCost says what a device loses while an XDP program is attached in native mode. It returns "" if the device shows nothing that it would lose.
// attached says whether a program is attached now, so that some of it is lost already.
//
// A veth copies each frame then, and its other end makes no large segments (veth_fix_features and veth_convert_skb_to_xdp_buff in drivers/net/veth.c).
// If the other end makes none anyway, little is lost.
func XDPCost(device string, attached bool) string {
	c, err := features.Open()
	if err != nil {
		return ""
	}
	defer c.Close()
	has, err := c.Features(device)
	if err != nil {
		return ""
	}
	for _, name := range joining {
		if has[name].On {
			return fmt.Sprintf("with XDP, device %s joins no received segments (%s)", device, name)
		}
	}
	if driver, err := c.Driver(device); err != nil || driver != "veth" || !attached && !peerSegments(c, device) {
		return ""
	}
	return fmt.Sprintf("with XDP, the other end of veth %s makes no large segments", device)
}

// peerSegments reports whether the other end of a veth makes large segments. It returns true if the other end is in another network namespace.
func peerSegments(c *features.Conn, device string) bool {
	dev, err := netlink.LinkByName(device)
	if err != nil || dev.Attrs().NetNsID >= 0 {
		return true
	}
	peer, err := netlink.LinkByIndex(dev.Attrs().ParentIndex)
	if err != nil {
		return true
	}
	has, err := c.Features(peer.Attrs().Name)
	return err != nil || has["tx-tcp-segmentation"].On || has["tx-generic-segmentation"].On
}
