package facts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// Port is a device that hands what it receives to another one before IP sees it. XDP and the ingress hook of the device come before that;
// at raw and filter the packet has the name of the other one, also where br_netfilter shows bridged packets to iptables
// (setup_pre_routing of net/bridge/br_netfilter_hooks.c).
type Port struct{ Device, Of, Kind string }

// String says of what the device is a port.
func (p Port) String() string {
	if strings.HasPrefix(p.Of, p.Kind) { // as br0 does not, and bond0 does
		return fmt.Sprintf("device %s is a port of %s", p.Device, p.Of)
	}
	return fmt.Sprintf("device %s is a port of %s %s", p.Device, p.Kind, p.Of)
}

// VRF is the kind of a device that takes packets of its ports behind prerouting, where they come again, with its name.
const VRF = "vrf"

// portKinds are the devices that take all packets of their ports (rx_handler of include/linux/netdevice.h).
var portKinds = []string{"bridge", "bond", "team", "openvswitch", VRF}

// Children finds the macvlans and ipvlans of devices in this network namespace: they take packets of the device by a handler, as a bridge does
// (Port), and only those for their own addresses. Device is the one below.
func Children(devices []string) (list []Port, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	for _, l := range links {
		if !slices.Contains([]string{"macvlan", "macvtap", "ipvlan", "ipvtap"}, l.Type()) {
			continue
		}
		i := slices.IndexFunc(links, func(m netlink.Link) bool { return m.Attrs().Index == l.Attrs().ParentIndex })
		if i >= 0 && slices.Contains(devices, links[i].Attrs().Name) {
			list = append(list, Port{links[i].Attrs().Name, l.Attrs().Name, l.Type()})
		}
	}
	return list, nil
}

// Ports finds the devices that are ports of a bridge or the like, and those whose VLAN devices are that are called DEVICE.N.
func Ports(devices []string) (ports []Port, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	for _, l := range links {
		at := l.Attrs()
		named := slices.ContainsFunc(devices, func(d string) bool {
			return at.Name == d || l.Type() == "vlan" && strings.HasPrefix(at.Name, d+".")
		})
		if !named || at.MasterIndex == 0 {
			continue
		}
		i := slices.IndexFunc(links, func(m netlink.Link) bool { return m.Attrs().Index == at.MasterIndex })
		if i >= 0 && slices.Contains(portKinds, links[i].Type()) {
			ports = append(ports, Port{at.Name, links[i].Attrs().Name, links[i].Type()})
		}
	}
	return ports, nil
}
