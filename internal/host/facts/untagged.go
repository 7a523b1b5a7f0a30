package facts

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// RepliesUntagged returns an error when what XDP in native mode sends back on a device would leave without the VLAN tag that its
// cause came with: the device takes tags off before XDP sees a frame, and a VLAN device stands on it. The kernel hands the tag
// only to programs that are bound to one device (bpf_xdp_metadata_rx_vlan_tag, Linux 6.8), which can be neither on several
// devices nor behind the tail call that a trial makes (bpf_prog_map_compatible() of kernel/bpf/core.c). In generic mode the
// kernel keeps the tag beside the frame.
func RepliesUntagged(device string) error {
	vlan, err := vlanOn(device)
	if err != nil || vlan == "" || !stripsVLAN(device) {
		return err
	}
	return fmt.Errorf("device %s takes off the VLAN tags of %s before XDP sees them, so that replies from XDP leave without; "+
		"`ethtool -K %s rxvlan off` (of a veth, and txvlan off at its other end) lets XDP see them: then apply again", device, vlan, device)
}

// vlanOn names a VLAN device that stands on a device, or on the bond, team or bridge that it is a port of; "" when none does.
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
