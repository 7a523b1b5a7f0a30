// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// Port is a device that passes its received packets to another device before IP sees them. XDP and the ingress hook of the port run before that. At
// raw and filter the packet has the name of the other device, also if br_netfilter passes bridged packets to iptables (setup_pre_routing of
// net/bridge/br_netfilter_hooks.c).
type Port struct{ Device, Of, Kind string }

// String says of which device it is a port.
func (p Port) String() string {
	if strings.HasPrefix(p.Of, p.Kind) { // true for bond0, not for br0
		return fmt.Sprintf("device %s is a port of %s", p.Device, p.Of)
	}
	return fmt.Sprintf("device %s is a port of %s %s", p.Device, p.Kind, p.Of)
}

// VRF is the kind of a device that takes packets from its ports after prerouting. The packets then pass prerouting again, with the name of the VRF.
const VRF = "vrf"

// portKinds are the kinds of devices that take all packets of their ports (rx_handler of include/linux/netdevice.h).
var portKinds = []string{"bridge", "bond", "team", "openvswitch", VRF}

// Children returns the macvlans and ipvlans of devices in this network namespace. Like a bridge (Port), they take packets of the lower device with a
// handler, but only packets for their own addresses. In the result, Device is the lower device and Of is the macvlan or ipvlan.
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

// Ports returns the devices that are ports of a bridge or a similar device. It also returns devices whose VLAN devices called DEVICE.N are such
// ports.
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
