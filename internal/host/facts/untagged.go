// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// RepliesUntagged returns an error if replies of XDP in native mode on a device would lack the VLAN tag of the packets that they answer. That is so
// if the device removes tags before XDP sees a frame, and has a VLAN device on top of it. The kernel shows the tag only to programs that are bound to
// one device (bpf_xdp_metadata_rx_vlan_tag, Linux 6.8). Such a program cannot be on several devices, and cannot be the target of the tail call of a
// trial (bpf_prog_map_compatible() of kernel/bpf/core.c). In generic mode the kernel keeps the tag in metadata.
func RepliesUntagged(device string) error {
	vlan, err := vlanOn(device)
	if err != nil || vlan == "" || !stripsVLAN(device) {
		return err
	}
	return fmt.Errorf("device %s takes off the VLAN tags of %s before XDP sees them, so that replies from XDP leave without; "+
		"`ethtool -K %s rxvlan off` (of a veth, and txvlan off at its other end) lets XDP see them: then apply again", device, vlan, device)
}

// vlanOn returns the name of a VLAN device on top of a device. If the device is a port of a bond, team or bridge, it searches on top of that one. It
// returns "" when there is no VLAN device.
func vlanOn(device string) (string, error) {
	at, err := netlink.LinkByName(device)
	if err != nil {
		return "", fmt.Errorf("device %s: %w", device, err)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return "", fmt.Errorf("devices: %w", err)
	}
	for _, l := range links {
		parent := l.Attrs().ParentIndex
		if l.Type() == "vlan" && parent != 0 && (parent == at.Attrs().Index || parent == at.Attrs().MasterIndex) {
			return l.Attrs().Name, nil
		}
	}
	return "", nil
}
